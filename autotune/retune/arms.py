"""What is visited in turns: a launch config on one of two vLLM versions.

A ``Side`` is one version with all that boots and measures it, a visit one engine booted as it would be in production,
with one load on it. Both versions share the workload, the prompts of a round, the time and the record.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

from autotune.engine.types import BootFailed
from autotune.errors import EnvironmentFault
from autotune.report.progress import RunProgress, TrialLine
from autotune.retune.compare import Comparison
from autotune.retune.deadline import Deadline
from autotune.search.budget import Budget
from autotune.search.domain import Domain
from autotune.space.config import LaunchConfig
from autotune.store.store import Store
from autotune.tuner.engines import FINAL, Engines
from autotune.tuner.feasible import Feasible
from autotune.tuner.judge import Judge
from autotune.tuner.plan import Plan
from autotune.tuner.seat import Seat
from autotune.tuner.session import Session
from autotune.tuner.stop import StopFlag
from autotune.tuner.trials import EngineFailed, TrialRunner
from autotune.tuner.tune import memory_gate

MOST_TRIES = 2


class Side:
    """One vLLM version, ready to boot. Nothing that an earlier version taught about memory is carried over."""

    def __init__(self, plan: Plan, store: Store, progress: RunProgress, stop: StopFlag) -> None:
        self.plan = plan
        host_id = store.record_host(plan.host.fingerprint(), plan.host.to_dict())
        run_id = store.start_run(plan.study, host_id, plan.identity(), {"vllm_python": str(plan.install.python)})
        session = Session(store, run_id, 0.0, False, None)
        feasible = Feasible(plan, Domain(plan.space, plan.space.defaults, plan.space.seeds), None)
        budget = Budget()
        self.engines = Engines(plan, session, budget, feasible, memory_gate(plan, stop), progress, stop)
        self.judge = Judge(plan.device.total_bytes)
        self.trials = TrialRunner(
            plan, store, self.engines, Seat(self.engines), self.judge, budget, stop, _no_seed_of_its_own
        )


@dataclass(frozen=True, slots=True)
class Arm:
    """``config`` on ``side``; ``name`` is what a person sees."""

    name: str
    side: Side
    config: LaunchConfig


@dataclass
class Visits:
    """Runs rounds of visits and keeps what they gave: boots counted, boot times by arm, arms that are out and why.

    ``failed`` arms do not run, or miss an SLO; ``unmeasured`` ones twice gave no figure, which says nothing about them.
    """

    deadline: Deadline
    progress: RunProgress
    unit: str
    seed: int
    most_boots: int | None = None
    boots: int = 0
    boot_s: dict[str, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    unmeasured: dict[str, str] = field(default_factory=dict)
    took_s: list[float] = field(default_factory=list)

    @property
    def visit_s(self) -> float:
        """Forecast of one visit, a little more than it used to take; 0 before the first."""
        return 1.15 * median(self.took_s[-9:]) if self.took_s else 0.0

    def play(self, arms: list[Arm], comparison: Comparison, decided: Callable[[], bool]) -> None:
        """Whole rounds until it is decided, no round is left, or the time is over."""
        by_name = {arm.name: arm for arm in arms}
        while comparison.arms and not comparison.full:
            number = comparison.rounds
            self.seed += 1
            for name in list(comparison.order(number)):
                if not self._room():
                    return
                value = self._measured(by_name[name], number)
                if value is None:
                    comparison.drop(name)
                else:
                    comparison.record(name, number, value)
            if decided():
                return

    def _room(self) -> bool:
        return self.deadline.room(self.visit_s) and (self.most_boots is None or self.boots < self.most_boots)

    def _measured(self, arm: Arm, number: int) -> float | None:
        """The visit's value; None (with its reason kept) where the arm does not run, or twice gave no number."""
        for _ in range(MOST_TRIES):
            value, reason, final = self._visit(arm, number)
            if value is not None:
                return value
            (self.failed if final else self.unmeasured)[arm.name] = reason
            if final or not self._room():
                break
        return None

    def _visit(self, arm: Arm, number: int) -> tuple[float | None, str, bool]:
        before = self.deadline.spent_s
        self.boots += 1
        try:
            with arm.side.engines.boot(arm.config, role=FINAL) as running:
                point = arm.side.trials.point(running, self.seed, f"race-{self.seed}", race=True)
                boot_s = running.boot_s
        except (BootFailed, EngineFailed) as error:
            outcome = arm.side.judge.outcome(error.failure, 0.0, arm.config.key())
            self._show(arm, number, None, None, outcome.reason)
            return None, outcome.reason, outcome.status == "infeasible"
        arm.side.judge.success()
        self.took_s.append(self.deadline.spent_s - before)
        self.boot_s[arm.name] = max(boot_s, self.boot_s.get(arm.name, 0.0))
        reason = point.problem or point.missed
        self._show(arm, number, point.value, boot_s, reason)
        return point.value, reason, bool(point.missed)

    def _show(self, arm: Arm, number: int, value: float | None, boot_s: float | None, reason: str) -> None:
        line = TrialLine(f"round {number + 1}", arm.name, "failed", value, self.unit, None, boot_s, reason)
        self.progress.trial(line)
        spent_s, budget_s = self.deadline.spent_s, self.deadline.budget_s
        self.progress.budget(min(spent_s / budget_s, 1.0), max(budget_s - spent_s, 0.0))


def _no_seed_of_its_own() -> int:
    raise EnvironmentFault("a comparison gives every visit its seed")
