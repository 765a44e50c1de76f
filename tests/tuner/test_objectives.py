"""How each objective loads an engine and reads its figure, on a bench that answers as it is told."""

import math
import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from blank_measurement import blank_measurement

from autotune.load.capacity import Capacity, Probe
from autotune.load.diagnosis import Diagnosis
from autotune.load.slo import Slo
from autotune.load.types import (
    Estimate,
    FullRun,
    Latency,
    LoadSpec,
    Measurement,
    SloResult,
)
from autotune.report.figures import figure
from autotune.search.noise import noise_floor
from autotune.search.race import Race, Runner
from autotune.search.roofline import Operating, RooflinePrior
from autotune.tuner.loader import Loaded
from autotune.tuner.objective import SLO_MARGIN, Effort, Objective
from autotune.tuner.objectives import OBJECTIVES, Asked, asked_before, make_objective
from autotune.tuner.plan import study_name
from autotune.tuner.points import Incumbent, Point

TTFT = Slo("ttft", 0.95, 500)
EFFORT = Effort(shortest_s=2, longest_s=4, precision=0.03)


def measured(tokens_per_s: float = 1000.0, *, ttft_ms: float | None = 100.0, **changes: Any) -> Measurement:
    latency = Latency(500, 80.0, mean_se=2.0)
    wide = Estimate(tokens_per_s, tokens_per_s * 0.98, tokens_per_s * 1.02)
    blank = blank_measurement(
        output_tokens_per_s=wide,
        total_tokens_per_s=wide,
        requests_per_s=Estimate(9.0),
        ttft_ms=latency,
        tpot_ms=latency,
        itl_ms=latency,
        e2el_ms=latency,
        window_s=4.0,
        full_run=FullRun(5.0, 1.0, 1.0),
        slos=(SloResult(str(TTFT), "met", Estimate(0.97, 0.96, 0.98), ttft_ms, 500),),
    )
    return replace(blank, **changes)


class Told:
    """A bench that gives ``answer(load)`` and remembers what it was asked."""

    def __init__(
        self, answer: Callable[[LoadSpec], Measurement], capacity: Capacity | None = None, limit: Any = ""
    ) -> None:
        self._answer, self._capacity = answer, capacity
        self._limit = Diagnosis(limit, "", "") if limit else None
        self.loads: list[LoadSpec] = []
        self.rules: list[Sequence[Any]] = []
        self.asked: Any = None
        self.last: Loaded | None = None

    def measure(self, load: LoadSpec, *, tag: str = "", rules: Any = (), slos: Any = ()) -> Loaded:
        self.loads.append(load)
        self.rules.append(rules)
        self.last = Loaded(self._answer(load), self._limit)
        return self.last

    def capacity(self, slos: Any, **asked: Any) -> Capacity:
        self.asked = SimpleNamespace(slos=slos, **asked)
        assert self._capacity is not None
        return self._capacity


def make(name: str, **options: Any) -> Objective:
    concurrency = options.pop("concurrency", 32)
    return make_objective(Asked(objective=name, **options), None, concurrency, 1)


def test_throughput_is_the_rate_of_a_closed_loop() -> None:
    bench = Told(lambda _: measured(1000))
    read = make("throughput").take(bench, EFFORT)
    assert read.value == 1000 and read.value_se == pytest.approx(20 / 1.96, rel=1e-3)
    assert bench.loads[0].concurrency == 32 and bench.rules == [()]


def test_only_a_point_of_the_search_ends_early() -> None:
    bench = Told(lambda _: measured(1000))
    make("throughput").take(bench, replace(EFFORT, beat={"": 2000.0}))
    make("throughput").take(bench, replace(EFFORT, beat={"": 2000.0}, race=True))
    assert [len(rules) for rules in bench.rules] == [1, 0]


def test_an_invalid_measurement_has_no_value() -> None:
    read = make("throughput").take(Told(lambda _: measured(problems=("not measured: x",))), EFFORT)
    assert read.value is None and read.problem == "not measured: x" and not read.missed


def test_cost_is_the_price_over_the_tokens_of_an_hour() -> None:
    objective = make("cost", price_per_hour=3.6)
    read = objective.take(Told(lambda _: measured(1000)), EFFORT)
    assert objective.direction == "minimize" and read.value == pytest.approx(1.0)
    assert read.value_se == pytest.approx(0.0102, rel=1e-2)


def test_the_roofline_predicts_a_cost_as_well() -> None:
    at = Operating(32, 1e9, 1e5, 1e9, 512, 256, 1e12, 1e14)
    prior = make("cost", price_per_hour=3.6).prior(lambda _: at)
    plain = RooflinePrior(lambda _: at)
    assert prior is not None
    model = plain.fitted([])
    assert math.exp(prior.log_value(model, at)) == pytest.approx(1000 / math.exp(plain.log_value(model, at)))


def test_latency_is_the_mean_at_a_given_rate() -> None:
    objective = make("latency", rate_per_s=10.0)
    bench = Told(lambda _: measured())
    read = objective.take(bench, EFFORT)
    assert (read.value, read.value_se, objective.direction) == (80.0, 2.0, "minimize")
    assert bench.loads[0].arrival is not None and bench.loads[0].arrival.rate_per_s == 10


@pytest.mark.parametrize(
    "changes",
    [
        {"stopped": "diverging queue: +3 requests in flight per second"},
        {"problems": ("not measured: 9 of 40 requests failed: 9 without an end 30 s after the window",)},
    ],
)
def test_a_rate_that_cannot_be_kept_is_out_of_reach(changes: dict[str, Any]) -> None:
    bench = Told(lambda _: measured(**changes), limit="seqs")
    read = make("latency", rate_per_s=10.0).take(bench, EFFORT)
    assert read.value is None and not read.problem and len(bench.loads) == 1
    assert read.infeasible.startswith("cannot keep 10 requests per second") and read.violations["rate"] > 0


def test_a_queue_that_only_seems_to_grow_is_measured_again() -> None:
    answers = iter([measured(stopped="diverging queue: +1 requests in flight per second"), measured()])
    read = make("latency", rate_per_s=10.0).take(Told(lambda _: next(answers), limit="under-loaded"), EFFORT)
    assert read.value == 80.0 and not read.infeasible


def test_a_client_that_cannot_keep_up_says_nothing_about_the_server() -> None:
    problems = ("not measured: client saturated: x", "9 without an end 30 s after the window")
    read = make("latency", rate_per_s=10.0).take(Told(lambda _: measured(problems=problems)), EFFORT)
    assert read.problem and not read.infeasible


def test_a_missed_slo_is_told_in_words_and_never_as_a_figure() -> None:
    read = make("throughput", slos=(TTFT,)).take(Told(lambda _: measured(ttft_ms=610.0)), EFFORT)
    assert read.violations == {str(TTFT): pytest.approx(0.22)}
    point = Point(read, 1.0)
    assert point.value is None and point.missed == "ttft_p95=500ms missed by 22 % (610 ms)"
    assert point.details()["missed"] == point.missed


def test_requests_that_never_end_miss_their_slo() -> None:
    read = make("throughput", slos=(TTFT,)).take(Told(lambda _: measured(ttft_ms=None)), EFFORT)
    assert "never ended" in read.missed


def probe(rate: float, holds: bool, share: float = 0.97) -> Probe:
    result = SloResult("ttft_p95=460ms", "met" if holds else "missed", Estimate(share, share, share), 400.0, 100)
    return Probe(rate, holds, "why", measured(slos=(result,)), confirming=holds)


def test_goodput_is_searched_with_room_and_from_the_incumbents_bracket() -> None:
    bench = Told(lambda _: measured(), Capacity(8.0, (8.0, 8.6), (probe(8.0, True),)))
    read = make("goodput", slos=(TTFT,)).take(bench, replace(EFFORT, bracket=(7.0, 9.0)))
    assert bench.asked.slos == [Slo("ttft", 0.95, 500 * (1 - SLO_MARGIN))]
    assert bench.asked.bracket == (7.0, 9.0) and bench.asked.tolerance == 0.1
    assert read.value == 8.0 and read.bracket == (8.0, 8.6) and 0 < (read.value_se or 0) < 0.3


@pytest.mark.parametrize(("window_s", "verdict"), [(3.0, "adopt"), (10.0, "tie")])
def test_two_rounds_of_goodput_prove_a_doubling_when_its_noise_is_that_of_short_windows(
    window_s: float, verdict: str
) -> None:
    """Rates of a race on real vLLM with windows of 3 s; as much noise in windows of 10 s would be a warning."""
    rates = {"default": (31.6, 37.3), "more seqs": (69.1, 64.0)}
    noise = noise_floor([[30.4]], make("goodput", slos=(TTFT,)).noise(window_s))
    race = Race(Runner("default", 0), [Runner("more seqs", 1)], noise=noise, max_rounds=4)
    for _ in range(4):
        visit = race.next()
        assert visit is not None
        race.record(visit, rates[visit.runner][visit.round])
    assert race.result().verdict == verdict


def test_no_rate_that_holds_is_said_with_the_nearest_miss() -> None:
    miss = probe(0.4, False, share=0.76)
    bench = Told(lambda _: measured(), Capacity(None, (None, 0.4), (miss,), nearest_miss=miss))
    read = make("goodput", slos=(TTFT,)).take(bench, EFFORT)
    assert read.value is None and read.violations["slo"] == pytest.approx(0.2)
    for words in ("no rate meets ttft_p95=500ms with 8% to spare", "nearest miss: 0.4 requests per second", "76.0%"):
        assert words in read.missed


def test_a_capacity_that_was_not_measured_has_no_value() -> None:
    bench = Told(lambda _: measured(), Capacity(None, (None, None), (), "not measured: client saturated: x"))
    read = make("goodput", slos=(TTFT,)).take(bench, EFFORT)
    assert read.problem == "not measured: client saturated: x" and read.measurement is None
    assert Point(read, 1.0).value is None


def test_a_confirmed_rate_whose_counts_disagree_is_not_measured() -> None:
    bad = replace(probe(8.0, True), measurement=measured(problems=("not measured: the client counts 9",)))
    bench = Told(lambda _: measured(), Capacity(8.0, (8.0, 8.6), (bad,)))
    assert make("goodput", slos=(TTFT,)).take(bench, EFFORT).problem.startswith("not measured: the client counts")


def test_pareto_takes_three_loads_in_one_boot() -> None:
    bench = Told(lambda load: measured(100.0 * (load.concurrency or 0), ttft_ms=20.0 * (load.concurrency or 0)))
    objective = make("pareto", slos=(TTFT,))
    read = objective.take(bench, EFFORT)
    assert [load.concurrency for load in bench.loads] == [2, 8, 32]
    assert read.value == pytest.approx(800.0) and read.violations == {str(TTFT): pytest.approx(40 / 500 - 1)}
    assert read.aspects == {"interactive": 200.0, "balanced": 800.0}  # 32 in flight miss the SLO
    assert [level["load"] for level in read.details["levels"]] == ["2 in flight", "8 in flight", "32 in flight"]


@pytest.mark.parametrize("concurrency", [4, 5, 8, 32, 256])
def test_paretos_loads_differ(concurrency: int) -> None:
    levels = make("pareto", concurrency=concurrency).levels
    assert len(set(levels)) == 3 and list(levels) == sorted(levels) and levels[-1] == concurrency


def test_the_incumbent_is_the_best_in_the_objectives_direction() -> None:
    best = Incumbent(make("latency", rate_per_s=1.0))
    found = {"a": (90.0, (1.0, 2.0)), "b": (None, (3.0, 4.0)), "c": (70.0, (5.0, 6.0)), "d": (80.0, (7.0, 8.0))}
    for key, (value, bracket) in found.items():
        best.learn(key, value, {}, bracket)
    assert best.beat == {"": 70.0} and best.bracket == (5.0, 6.0)
    # A capacity search begins where that of the same configuration ended, and at the best's where there was none.
    assert {key: best.start_of(key) for key in found} == {**{k: b for k, (_, b) in found.items()}, "b": (5.0, 6.0)}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_is_a_value_that_tells_itself_apart(name: str) -> None:
    options = {"rate_per_s": 4.0, "price_per_hour": 2.0, "slos": (TTFT,)}
    one = make(name, **options)
    assert one.name == name and pickle.loads(pickle.dumps(one)) == one and one.load
    assert one.identity()["objective"] == name and str(TTFT) in one.slug and str(TTFT) in one.title()
    again = asked_before(one.title())
    assert make_objective(again, None, 32, 1) == one
    assert make(name, **{**options, "slos": (Slo("ttft", 0.95, 600),)}).slug != one.slug


def test_other_settings_have_other_study_names() -> None:
    rates = (0.001, 1.0, 1.0000001, 100_000.0)
    slos = [Slo.parse(text) for text in ("ttft_p99.999=1s", "ttft_p99.99=1s", "e2el_p95=2000s", "e2el_p95=2000.001s")]
    many = tuple(Slo("ttft", share / 1e5, 500) for share in range(1, 20))
    made = [make("latency", rate_per_s=rate) for rate in rates]
    made += [make("throughput", slos=each) for each in (*((slo,) for slo in slos), many, (*many, TTFT), many[1:])]
    names = [study_name("m", each.slug, "demo", "cpu", "0.32.0") for each in made]
    assert len(set(names)) == len(made) and max(map(len, names)) <= 180
    assert all(make_objective(asked_before(each.title()), None, 32, 1) == each for each in made)
    assert "latency-0.001-" in names[0] and "latency-100000-" in names[3]


def test_one_aspect_of_pareto_is_a_throughput_under_its_own_load() -> None:
    asked = asked_before(make("pareto", slos=(TTFT,)).title("interactive"))
    assert (asked.objective, asked.slos) == ("throughput", (TTFT,))


@pytest.mark.parametrize(
    ("value", "text"), [(12345.6, "12,346"), (863.4, "863"), (24.61, "24.6"), (0.03124, "0.0312"), (3.14159, "3.14")]
)
def test_figures_have_three_digits(value: float, text: str) -> None:
    assert figure(value) == text
