"""The end of a study: flags that carry nothing go, what does not hold at full load goes, and it is all said."""

import math
from collections.abc import Callable, Mapping

import pytest

from autotune.search.budget import Budget
from autotune.search.noise import PRIOR
from autotune.search.race import Race, RaceResult, Runner
from autotune.space.config import LaunchConfig
from autotune.tuner.ablate import NO_ROOM, Ablator
from autotune.tuner.ending import Closer, Ending, nobody_refuses
from autotune.tuner.finals import FINAL_RACE, Entrant, Rules
from autotune.tuner.proof import parts, parts_text, soak_text
from autotune.tuner.soak import Soaked, worst_case
from autotune.workload.lengths import Lengths
from autotune.workload.types import RequestShape, TraceRequest, Workload

FIXED = LaunchConfig.of({"max-model-len": 4096})
CARRIES: Mapping[str, float] = {"quantization": 0.30, "kv-cache-dtype": 0.06}
WINNER = FIXED.merged(
    LaunchConfig.of({"quantization": "fp8", "kv-cache-dtype": "fp8", "block-size": 32, "stream-interval": 4})
)
DEFAULT = Entrant("default", FIXED, 0, "default")
PROD = Entrant("prod", FIXED.merged(LaunchConfig.of({"enforce-eager": True})), 0, "incumbent")


def named(config: LaunchConfig) -> Entrant:
    return Entrant(str(config.changes_from(FIXED)), config, len(config.differences(FIXED)))


class FakeFinals:
    """Runs races by formula: every flag that carries something multiplies the speed."""

    def __init__(self, never_starts: tuple[str, ...] = (), clock: list[float] | None = None) -> None:
        self.never_starts = never_starts
        self.races: list[tuple[str, list[str]]] = []
        self.clock = clock or [0.0]

    def run(self, baseline, finalists, noise, earlier, rules: Rules = FINAL_RACE) -> RaceResult:
        entrants = {e.config.key(): e for e in [*([baseline] if baseline else []), *finalists]}
        self.races.append((rules.name, [e.name for e in entrants.values()]))
        first = Runner(baseline.config.key(), baseline.changes) if baseline else None
        race = Race(
            first,
            [Runner(e.config.key(), e.changes) for e in finalists],
            noise=noise,
            worth=rules.worth,
            min_rounds=rules.min_rounds,
            max_rounds=rules.max_rounds,
        )
        while (visit := race.next()) is not None:
            self.clock[0] += 10
            entrant = entrants[visit.runner]
            if any(f"without --{flag}" == entrant.name for flag in self.never_starts):
                race.drop(visit.runner, "does not start")
            else:
                race.record(visit, speed(entrant.config) * math.exp(0.001 * visit.round))
        return race.result()


def speed(config: LaunchConfig) -> float:
    return 1000 * math.prod(1 + gain for flag, gain in CARRIES.items() if config.get(flag) is not None)


class FakeSoaker:
    seconds = 3.0

    def __init__(self, fails: tuple[LaunchConfig, ...] = ()) -> None:
        self.fails = fails
        self.soaked: list[LaunchConfig] = []

    def run(self, config: LaunchConfig, earlier) -> Soaked:
        self.soaked.append(config)
        bad = config in self.fails
        return Soaked(256, 3.0, not bad, "oom_runtime: out of memory" if bad else "")


def finish(
    finals: FakeFinals,
    soaker: FakeSoaker,
    *finalists: LaunchConfig,
    budget: Budget | None = None,
    refuses: Callable[[LaunchConfig], str | None] = nobody_refuses,
) -> tuple[Ending, Entrant | None]:
    budget = budget or Budget(trials=5)
    raced = [PROD, *(named(c) for c in finalists)]
    ablator = Ablator(finals, budget, FIXED, ["quantization", "block-size"], PRIOR, list, named)
    race = finals.run(DEFAULT, raced, PRIOR, [])
    closer = Closer(budget, soaker, lambda w, i: ablator.run(w, DEFAULT, i), list, lambda _text: None, refuses)
    ending = closer.close(race, DEFAULT, raced)
    return ending, next((e for e in ending.finalists if e.config.key() == ending.race.winner), None)


def test_flags_that_carry_nothing_are_dropped_and_what_is_exported_has_raced() -> None:
    finals = FakeFinals()
    ending, winner = finish(finals, FakeSoaker(), WINNER)
    assert winner is not None and winner.config == WINNER.without("block-size", "stream-interval")
    assert [name for name, _ in finals.races] == ["race", "ablation", "recheck"]
    assert finals.races[-1][1][:2] == ["default", "prod"] and winner.name in finals.races[-1][1]
    assert winner.config.key() in ending.race.values and ending.race.rounds == 2
    found = {p.flag: p for p in parts(ending, winner)}
    assert found["quantization"].kept and not found["block-size"].kept
    gain = found["quantization"].gain
    assert gain is not None and gain.value == pytest.approx(0.30) and gain.low < 0.30 < gain.high
    (text,) = parts_text(ending, winner, 0.378)
    assert text.startswith("+38 %: --quantization 30 ± ") and "2 flags not needed and dropped" in text
    assert "--block-size" in text.split("dropped")[1]


def test_a_flag_without_which_nothing_starts_stays_and_says_so() -> None:
    ending, winner = finish(FakeFinals(never_starts=("block-size",)), FakeSoaker(), WINNER)
    assert winner is not None and winner.config.get("block-size") == 32 and winner.config.get("stream-interval") is None
    assert "--block-size (does not start without it)" in parts_text(ending, winner, 0.3)[0]


def test_a_single_flag_needs_no_ablation() -> None:
    finals = FakeFinals()
    ending, winner = finish(finals, FakeSoaker(), FIXED.merged(LaunchConfig.of({"quantization": "fp8"})))
    assert winner is not None and [name for name, _ in finals.races] == ["race"]
    assert parts(ending, winner) == () and "held" in soak_text(ending)[0]


def test_without_time_for_it_nothing_is_ablated_and_that_is_said() -> None:
    clock = [0.0]
    budget = Budget(seconds=100, clock=lambda: clock[0], boot_guess_s=5, point_guess_s=5)
    finals = FakeFinals(clock=clock)
    ending, winner = finish(finals, FakeSoaker(), WINNER, budget=budget)
    assert winner is not None and winner.config == WINNER
    assert [name for name, _ in finals.races] == ["race"] and NO_ROOM in ending.notes


def test_as_many_flags_as_fit_are_measured_those_of_most_expected_effect_first() -> None:
    clock = [0.0]
    # The race takes 60 s, two flags 60 s and the race after them 80 s.
    budget = Budget(seconds=215, clock=lambda: clock[0], boot_guess_s=5, point_guess_s=5)
    finals = FakeFinals(clock=clock)
    ending, winner = finish(finals, FakeSoaker(), WINNER, budget=budget)
    assert len(finals.races[1][1]) == 3 and "without --quantization" in finals.races[1][1]
    assert winner is not None and winner.config.get("block-size") is None
    assert set(ending.ablation.untested) == {"kv-cache-dtype", "stream-interval"}
    assert "not measured: --kv-cache-dtype, --stream-interval" in parts_text(ending, winner, 0.3)[0]
    assert clock[0] <= 215


def test_what_does_not_hold_at_full_load_steps_down_to_the_next_best_that_raced() -> None:
    first = FIXED.merged(LaunchConfig.of({"quantization": "fp8"}))
    second = FIXED.merged(LaunchConfig.of({"kv-cache-dtype": "fp8"}))
    soaker = FakeSoaker(fails=(first,))
    ending, winner = finish(FakeFinals(), soaker, first, second)
    assert soaker.soaked == [first, second]
    assert winner is not None and winner.config == second
    assert "did not hold at full load" in ending.notes[0] and "oom_runtime" in ending.notes[0]


def test_what_must_not_be_exported_is_passed_over_though_it_raced() -> None:
    first = FIXED.merged(LaunchConfig.of({"quantization": "fp8"}))
    second = FIXED.merged(LaunchConfig.of({"kv-cache-dtype": "fp8"}))
    soaker = FakeSoaker()
    refuses = {first: "its answers differ too much"}.get
    ending, winner = finish(FakeFinals(), soaker, first, second, refuses=refuses)
    assert winner is not None and winner.config == second and soaker.soaked == [second]
    assert "raced for comparison and is not recommended: its answers differ" in ending.notes[0]
    assert first.key() in ending.race.values


def test_where_nothing_holds_the_default_stays() -> None:
    first = FIXED.merged(LaunchConfig.of({"quantization": "fp8"}))
    ending, winner = finish(FakeFinals(), FakeSoaker(fails=(first,)), first)
    assert winner is None and ending.race.winner is None and len(ending.notes) == 1


def test_the_worst_case_is_only_the_longest_requests() -> None:
    short, long = (RequestShape(n, Lengths.fixed(a), Lengths.lognormal(b, 0.5, 1, 2 * b)) for n, a, b in NAMED)
    worst = worst_case(Workload("w", shapes=(short, long)))
    (shape,) = worst.shapes
    assert (shape.input.low, shape.output.low) == (512, 400)
    traced = worst_case(Workload("t", trace=(TraceRequest(10, 5), TraceRequest(90, 20))))
    assert traced.trace == () and traced.max_len_needed == 110


NAMED = (("short", 64, 16), ("long", 512, 200))
