"""One trial: boot the suggested configuration, measure it, and say what that means."""

import time
from collections.abc import Callable
from statistics import fmean, stdev

from autotune.engine.failures import Failure
from autotune.engine.types import BootFailed, BootKind
from autotune.errors import AutotuneError
from autotune.search.budget import Budget
from autotune.search.types import Outcome, Suggestion
from autotune.store.store import Store
from autotune.tuner.engines import Engines, Running
from autotune.tuner.judge import Judge
from autotune.tuner.plan import Plan
from autotune.tuner.points import Point, take_point
from autotune.tuner.stop import StopFlag
from autotune.tuner.watch import Watch

BASELINE_BLOCKS = 3


class EngineFailed(AutotuneError):
    """An engine that was ready died or hung under its load."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure))
        self.failure = failure


class TrialRunner:
    """Runs suggestions on real engines. ``seeds`` gives a prompt seed that no earlier point has used."""

    def __init__(
        self,
        plan: Plan,
        store: Store,
        engines: Engines,
        judge: Judge,
        budget: Budget,
        stop: StopFlag,
        seeds: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan = plan
        self._store = store
        self._engines = engines
        self._judge = judge
        self._budget = budget
        self._stop = stop
        self._seeds = seeds
        self._clock = clock

    def run(self, suggestion: Suggestion, kind: BootKind) -> tuple[Outcome, float | None]:
        """The outcome and the boot's seconds. Raises ``EnvironmentFault`` and ``Interrupted``."""
        baseline = suggestion.origin == "baseline"
        started = self._clock()
        try:
            with self._engines.boot(
                suggestion.config, role="baseline" if baseline else "trial", trial=suggestion.trial, kind=kind
            ) as running:
                self._judge.success()
                points = [self._trial_point(running) for _ in range(BASELINE_BLOCKS if baseline else 1)]
            return _outcome(points, self._clock() - started), running.boot_s
        except BootFailed as error:
            return self._judge.outcome(error.failure, self._clock() - started), error.boot_s
        except EngineFailed as error:
            return self._judge.outcome(error.failure, self._clock() - started), None

    def _trial_point(self, running: Running) -> Point:
        seed = self._seeds()
        return self.point(running, seed, f"trial-{seed}")

    def point(self, running: Running, seed: int, prompts: str) -> Point:
        """Measure once and write it down; equal ``prompts`` mean equal prompts.

        Raises ``EngineFailed`` where the engine died or hung under the load, ``Interrupted`` on request.
        """
        self._stop.check()
        with Watch(running.engine).running() as watch:
            point = take_point(
                running.engine,
                self._plan,
                seed=seed,
                point_id=prompts,
                stop=lambda: self._reason_to_stop(watch),
                clock=self._clock,
            )
        self._stop.check()
        self._budget.charge_point(point.duration_s)
        self._store.add_point(
            running.boot_id,
            prompt_seed=seed,
            live={},
            value=point.value,
            measurement=point.measurement.to_json(),
            duration_s=point.duration_s,
        )
        failure = watch.failure or running.engine.failure()
        if failure:
            self._engines.record_failure(running.boot_id, failure)
            raise EngineFailed(failure)
        return point

    def _reason_to_stop(self, watch: Watch) -> str | None:
        if self._stop():
            return "stopped on request"
        return str(watch.failure) if watch.failure else None


def _outcome(points: list[Point], cost_s: float) -> Outcome:
    values = [p.value for p in points if p.value is not None]
    if len(values) < len(points):
        reason = next(p.problem for p in points if p.value is None)
        return Outcome("not_measured", cost_s=cost_s, reason=f"not measured: {reason}")
    if len(values) == 1:
        return Outcome("measured", value=values[0], value_se=points[0].value_se, cost_s=cost_s)
    return Outcome("measured", value=fmean(values), value_se=stdev(values) / len(values) ** 0.5, cost_s=cost_s)
