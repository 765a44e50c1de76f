"""One trial: boot the suggested configuration, measure it, and say what that means."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import fmean, stdev
from types import MappingProxyType
from typing import Any

from autotune.engine.failures import Failure
from autotune.engine.live import LiveUnavailable
from autotune.engine.logs import BootPhase
from autotune.engine.probe import ProbeError
from autotune.engine.types import BootFailed
from autotune.errors import AutotuneError
from autotune.search.budget import Budget
from autotune.search.types import GIVEN, Fidelity, Outcome, Suggestion
from autotune.store.store import Store
from autotune.tuner.engines import BudgetSpent, Engines, Running
from autotune.tuner.judge import Judge
from autotune.tuner.objective import Reading
from autotune.tuner.plan import Plan
from autotune.tuner.points import Incumbent, Point, effort, energy_counter, take_point
from autotune.tuner.quality import QualityGuard
from autotune.tuner.seat import Seat
from autotune.tuner.stop import StopFlag
from autotune.tuner.watch import Watch

NOTHING_LOWERED: Mapping[str, int] = MappingProxyType({})


class EngineFailed(AutotuneError):
    """An engine that was ready died or hung under its load."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure))
        self.failure = failure


class TrialRunner:
    """Runs suggestions on real engines. ``seeds`` gives a prompt seed that no earlier point has used.

    ``quality`` judges what engines answer; without it every answer is taken.
    """

    def __init__(
        self,
        plan: Plan,
        store: Store,
        engines: Engines,
        seat: Seat,
        judge: Judge,
        budget: Budget,
        stop: StopFlag,
        seeds: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
        *,
        quality: QualityGuard | None = None,
    ) -> None:
        self._plan = plan
        self._store = store
        self._engines = engines
        self._seat = seat
        self._judge = judge
        self._quality = quality
        self._budget = budget
        self._stop = stop
        self._seeds = seeds
        self._clock = clock
        self._incumbent = Incumbent.of(plan.objective, store.run(plan.study))
        self._joules = energy_counter(plan)
        self.limit = ""
        """What limited the last trial; empty where nothing can be said."""

    def run(self, suggestion: Suggestion) -> tuple[Outcome, float | None]:
        """The outcome and the boot's seconds, None where no engine was booted for it.

        Raises ``EnvironmentFault`` and ``Interrupted``.
        """
        started = self._clock()
        self.limit = ""
        baseline = suggestion.origin == "baseline"
        try:
            if self._quality is not None and self._quality.needs_reference(suggestion.config):
                self._seat.leave()
                self._quality.take_reference(self._engines, suggestion.config)
            running = self._seat.take(suggestion, suggestion.origin if suggestion.origin in GIVEN else "trial")
            self._judge.success()
            if self._quality is not None and (nothing := self._quality.without_effect(running)) is not None:
                return Outcome("infeasible", cost_s=self._clock() - started, reason=nothing), running.boot_s
            blocks = self._plan.objective.blocks if baseline else 1
            points = [self._trial_point(running, suggestion.live, baseline) for _ in range(blocks)]
        except BootFailed as error:
            return self._judge.outcome(error.failure, self._clock() - started, suggestion.config.key()), error.boot_s
        except EngineFailed as error:
            self._seat.leave()
            return self._judge.outcome(error.failure, self._clock() - started, suggestion.config.key()), None
        except BudgetSpent as error:
            return Outcome("not_measured", cost_s=self._clock() - started, reason=str(error)), None
        except LiveUnavailable as error:
            self._seat.leave()
            return Outcome("not_measured", cost_s=self._clock() - started, reason=str(error)), None
        self.limit = (points[-1].reading.details.get("limit") or {}).get("limit", "")
        boot_s = None if suggestion.live else running.boot_s
        outcome = _outcome(points, self._clock() - started, suggestion.fidelity)
        # The sampler weighs a boot against a point in a running engine by what each took.
        outcome = replace(outcome, boot_s=boot_s or 0.0)
        if self._quality is not None:
            outcome = self._quality.judged(outcome, running)
        return outcome, boot_s

    def _trial_point(self, running: Running, live: Mapping[str, int], baseline: bool) -> Point:
        seed = self._seeds()
        point = self.point(running, seed, f"trial-{seed}", live, race=False, baseline=baseline)
        if not live:
            self._incumbent.learn(running.config.key(), point.value, point.reading.aspects, point.reading.bracket)
        return point

    def point(
        self,
        running: Running,
        seed: int,
        prompts: str,
        live: Mapping[str, int] = NOTHING_LOWERED,
        *,
        race: bool,
        baseline: bool = False,
        brief: bool = False,
    ) -> Point:
        """Measure once and write it down; equal ``prompts`` mean equal prompts.

        Raises ``EngineFailed`` where the engine died or hung under the load, ``Interrupted`` on request.
        """
        self._stop.check()
        with Watch(running.engine).running() as watch:
            try:
                point = take_point(
                    running.engine,
                    self._plan,
                    effort(
                        self._plan,
                        self._incumbent,
                        running.config.key(),
                        race=race,
                        baseline=baseline,
                        brief=brief,
                    ),
                    live=live,
                    seed=seed,
                    point_id=prompts,
                    joules=self._joules,
                    stop=lambda: self._reason_to_stop(watch),
                    clock=self._clock,
                )
            except ProbeError as error:
                silent = Failure.of("engine_died", phase=BootPhase.SERVING, line=str(error))
                raise self._failed(running, watch.failure or running.engine.verdict() or silent) from error
        self._stop.check()
        self._budget.saw_point(point.duration_s, race=race and not brief)
        engine = running.engine
        failure = watch.failure or (engine.verdict() if point.problem else engine.failure())
        self._store.add_point(
            running.boot_id,
            prompt_seed=seed,
            live=dict(live),
            value=None if failure else point.value,
            measurement=_measurement(point),
            details=point.details(),
            duration_s=point.duration_s,
        )
        if failure:
            raise self._failed(running, failure)
        return point

    def _failed(self, running: Running, failure: Failure) -> EngineFailed:
        self._engines.record_failure(running.boot_id, failure)
        return EngineFailed(failure)

    def _reason_to_stop(self, watch: Watch) -> str | None:
        if self._stop():
            return "stopped on request"
        return str(watch.failure) if watch.failure else None


def _measurement(point: Point) -> dict[str, Any]:
    found = point.reading.measurement
    return {} if found is None else found.to_json()


def _outcome(points: list[Point], cost_s: float, fidelity: Fidelity) -> Outcome:
    """What the points of one trial say together; of each SLO the worst of them."""
    for point in points:
        if point.problem:
            return Outcome("not_measured", cost_s=cost_s, fidelity=fidelity, reason=point.problem)
    readings = [p.reading for p in points]
    for read in readings:
        if read.infeasible:
            missed = dict(read.violations)
            return Outcome("infeasible", violations=missed, cost_s=cost_s, fidelity=fidelity, reason=read.infeasible)
    values = [r.value for r in readings if r.value is not None]
    error = readings[0].value_se if len(values) == 1 else stdev(values) / len(values) ** 0.5
    return Outcome(
        "measured",
        value=fmean(values),
        value_se=error,
        violations={name: max(r.violations[name] for r in readings) for name in readings[0].violations},
        aspects={a: fmean(r.aspects[a] for r in readings) for a in readings[0].aspects if _all_have(a, readings)},
        cost_s=cost_s,
        fidelity=fidelity,
        reason=next((p.missed for p in points if p.missed), ""),
    )


def _all_have(aspect: str, readings: list[Reading]) -> bool:
    return all(aspect in read.aspects for read in readings)
