"""A whole night on a clock of its own: what is visited, in which order, and that its time is never exceeded."""

import io
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from autotune.report.progress import PlainProgress
from autotune.retune import night as night_module
from autotune.retune.arms import Visits
from autotune.retune.compare import MIN_ROUNDS
from autotune.retune.deadline import Deadline
from autotune.retune.night import DEFAULT, FOUND, NEW, OLD, Night, Question
from autotune.retune.verdict import decide
from autotune.search.noise import PRIOR
from autotune.space.config import LaunchConfig
from autotune.tuner.stop import StopFlag

INCUMBENT = LaunchConfig.of({"max-num-seqs": 16})
BETTER = LaunchConfig.of({"max-num-seqs": 64})
VISIT_S = 100.0


@dataclass
class Machine:
    """Two versions with a true speed per config; a visit takes ``VISIT_S`` on the machine's clock."""

    old: dict[LaunchConfig, float]
    new: dict[LaunchConfig, float]
    noise: float = 0.01
    now_s: float = 0.0
    seen: list[tuple[str, LaunchConfig, int]] = field(default_factory=list)
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))

    def side(self, plan: str, *_: Any) -> SimpleNamespace:
        truth = self.old if plan == "old" else self.new

        @contextmanager
        def boot(config: LaunchConfig, role: str) -> Iterator[SimpleNamespace]:
            yield SimpleNamespace(boot_s=60.0, config=config)

        def point(running: SimpleNamespace, seed: int, prompts: str, race: bool) -> SimpleNamespace:
            self.now_s += VISIT_S
            self.seen.append((plan, running.config, seed))
            value = truth[running.config] * math.exp(self.rng.normal(0, self.noise))
            return SimpleNamespace(value=value, problem="", missed="")

        judge = SimpleNamespace(success=lambda: None)
        return SimpleNamespace(engines=SimpleNamespace(boot=boot), trials=SimpleNamespace(point=point), judge=judge)


def play(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, *, budget_s: float = 7200.0, found: LaunchConfig | None = None
) -> Night:
    """One night; ``found`` is what its search would find."""
    monkeypatch.setattr(night_module, "Side", machine.side)
    monkeypatch.setattr(Night, "_search", lambda self, seconds: found)
    stop = StopFlag()
    deadline = Deadline(budget_s, stop, clock=lambda: machine.now_s)
    progress = PlainProgress(io.StringIO())
    visits = Visits(deadline, progress, "tok/s", seed=1)
    plans: Any = {"new": "new", "old": "old" if machine.old else None}
    question = Question(**plans, before=INCUMBENT, after=INCUMBENT, seeds=(), noise=PRIOR, search=True)
    night = Night(question, None, progress, stop, deadline, visits, 1.0)  # type: ignore[arg-type]
    night.run()
    return night


def same(speed: float) -> dict[LaunchConfig, float]:
    return {INCUMBENT: speed, LaunchConfig(): 0.7 * speed, BETTER: 1.2 * speed}


def test_a_quiet_night_visits_in_turns_on_equal_fresh_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(same(100), same(100))
    night = play(machine, monkeypatch)
    assert decide(night.evidence, None).verdict == "equal"
    first, second = machine.seen[:3], machine.seen[3:6]
    assert [(plan, config) for plan, config, _ in second] == [(plan, config) for plan, config, _ in first][::-1]
    seeds = [{seed for _, _, seed in machine.seen[n : n + 3]} for n in range(0, len(machine.seen), 3)]
    assert all(len(each) == 1 for each in seeds) and len(set.union(*seeds)) == len(seeds)
    assert night.evidence.upgrade.rounds <= MIN_ROUNDS + 3


@pytest.mark.parametrize(("speed", "verdict"), [(90, "hold"), (70, "hold"), (110, "adopt")])
def test_a_version_that_differs_is_told(monkeypatch: pytest.MonkeyPatch, speed: float, verdict: str) -> None:
    night = play(Machine(same(100), same(speed)), monkeypatch)
    assert decide(night.evidence, None).verdict == verdict


def test_what_the_search_found_is_confirmed_on_fresh_rounds_and_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(same(100), same(92))
    night = play(machine, monkeypatch, found=BETTER)
    decision = decide(night.evidence, None)
    assert (decision.verdict, decision.winner) == ("adopt-new-config", FOUND)
    assert night.evidence.confirmed is not None and night.evidence.confirmed.arms == [OLD, NEW, FOUND]
    seeds = [seed for _, _, seed in machine.seen]
    assert seeds == sorted(seeds)


def test_a_lucky_find_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    new = {**same(100), BETTER: 99.0}
    night = play(Machine(same(100), new), monkeypatch, found=BETTER)
    assert decide(night.evidence, None).verdict == "equal"


@pytest.mark.parametrize("budget_s", [250.0, 900.0, 1500.0, 3000.0])
def test_the_time_is_never_exceeded(monkeypatch: pytest.MonkeyPatch, budget_s: float) -> None:
    machine = Machine(same(100), same(98), noise=0.03)
    night = play(machine, monkeypatch, budget_s=budget_s, found=BETTER)
    assert machine.now_s <= budget_s
    assert decide(night.evidence, None).verdict in ("undecided", "equal", "adopt-new-config", "hold")
    if budget_s < 3 * MIN_ROUNDS * VISIT_S:
        assert decide(night.evidence, None).verdict == "undecided"


def test_without_the_old_version_the_record_stands_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from autotune.store.recommendation import Interval

    record = Interval(100, 99, 101)
    for speed, verdict in ((100, "equal"), (80, "hold"), (125, "adopt")):
        night = play(Machine({}, same(speed)), monkeypatch)
        assert night.evidence.upgrade.arms == [NEW, DEFAULT] and night.evidence.upgrade.rounds == MIN_ROUNDS
        assert decide(night.evidence, record).verdict == verdict


def test_a_default_that_beats_all_ends_the_first_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    speeds = {INCUMBENT: 100.0, LaunchConfig(): 130.0}
    night = play(Machine(speeds, {**speeds, INCUMBENT: 98.0}), monkeypatch)
    assert night.evidence.upgrade.rounds == MIN_ROUNDS
    assert (decide(night.evidence, None).verdict, decide(night.evidence, None).winner) == ("adopt-new-config", DEFAULT)
