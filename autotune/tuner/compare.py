"""``autotune compare``: the precisions of one model by memory, speed and quality, each measured on this machine.

    the model as published ──▶ the reference
    every variant, every precision of the space, or what was asked for ──▶ one engine, one point, one reading

Nothing is searched: all engines run with the space's fixed flags, and each differs from the first in one precision.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from autotune.errors import UsageError
from autotune.report.progress import RunProgress, run_progress
from autotune.search.budget import Budget
from autotune.search.domain import Domain
from autotune.search.types import Observation, Outcome, Suggestion
from autotune.space.config import LaunchConfig
from autotune.store.recommendation import PrecisionQuality
from autotune.store.store import Store
from autotune.tuner.engines import Engines
from autotune.tuner.faults import named_faults
from autotune.tuner.feasible import Feasible
from autotune.tuner.fixed_flags import flag_value
from autotune.tuner.folder import StudyFolder
from autotune.tuner.judge import Judge
from autotune.tuner.plan import Plan
from autotune.tuner.precision import guarded, precision_class
from autotune.tuner.prepare import OUT, prepare
from autotune.tuner.quality import QualityGuard
from autotune.tuner.quality_report import quality_rows
from autotune.tuner.seat import Seat
from autotune.tuner.session import Session
from autotune.tuner.settings import RunSettings
from autotune.tuner.stop import StopFlag
from autotune.tuner.trials import TrialRunner
from autotune.tuner.tune import memory_gate
from autotune.tuner.variants import VARIANT


@dataclass(frozen=True, slots=True)
class Compared:
    """A row for each precision; speeds are in ``unit``."""

    rows: tuple[PrecisionQuality, ...]
    unit: str
    model: str
    device: str


def compare_precisions(settings: RunSettings, asked: Iterable[str] = ()) -> Compared:
    """Measure them. ``asked`` are flags like ``kv-cache-dtype=fp8``; without any, the space's values are taken.

    Raises ``UsageError``, ``EnvironmentFault``, ``StoreError`` and ``Interrupted``.
    """
    plan = _plan(settings)
    configs = [plan.space.fixed.merged(one) for one in precisions(plan, list(asked))]
    plan.folder.create()
    stop = StopFlag()
    with named_faults(), plan.folder.locked(), stop.on_signals(), run_progress() as progress:
        store = Store.open(plan.storage)
        try:
            return _measure(plan, store, configs, progress, stop)
        finally:
            store.close()


def precisions(plan: Plan, asked: list[str]) -> list[LaunchConfig]:
    """The model as published, then every variant and flag value, one change each. Raises ``UsageError``."""
    variants = [LaunchConfig.of({VARIANT: name}) for name in plan.variants]
    values = [_asked(text) for text in asked] if asked else list(_of_space(plan))
    return list(dict.fromkeys([LaunchConfig(), *variants, *values]))


def _plan(settings: RunSettings) -> Plan:
    """The plan of a study of its own; quality that cannot be measured leaves only the speed."""
    plan = prepare(replace(settings, allow_unverified_precision=True))
    if settings.study is not None:
        return plan
    study = f"compare-{plan.study}"
    folder = StudyFolder(settings.out or OUT / study)
    return replace(plan, study=study, folder=folder, storage=settings.storage or folder.default_storage)


def _of_space(plan: Plan) -> Iterator[LaunchConfig]:
    names = guarded(plan.space) - {VARIANT}
    for parameter in plan.space.parameters:
        if parameter.name in names:
            yield from (LaunchConfig.of({parameter.name: v}) for v in parameter.values if v is not None)


def _asked(text: str) -> LaunchConfig:
    name, sign, value = text.removeprefix("--").partition("=")
    if not sign or not name or not value:
        raise UsageError(f"--precision {text!r} is no flag with a value. Write it like kv-cache-dtype=fp8.")
    return LaunchConfig.of({name: flag_value(value)})


def _measure(plan: Plan, store: Store, configs: list[LaunchConfig], progress: RunProgress, stop: StopFlag) -> Compared:
    session, budget = Session.open(plan, store), Budget()
    quality = QualityGuard(plan, store, progress.note, stop.check, always=True)
    feasible = Feasible(plan, Domain(plan.space, plan.space.defaults, plan.space.seeds), None)
    engines = Engines(plan, session, budget, feasible, memory_gate(plan, stop), progress, stop)
    seat = Seat(engines)
    seeds = iter(range(plan.settings.seed * 100_000 + 1, 2**62))
    trials = TrialRunner(
        plan, store, engines, seat, Judge(plan.device.total_bytes), budget, stop, lambda: next(seeds), quality=quality
    )
    told: list[Observation] = []
    try:
        for number, config in enumerate(configs):
            progress.now(f"measuring {precision_class(plan.space, config)}")
            suggestion = Suggestion(number, config, config, {}, "seed" if number else "baseline")
            told.append(Observation(suggestion, _twice(trials, suggestion)))
    finally:
        seat.leave()
        engines.close()
    return Compared(_rows(plan, quality, told), plan.objective.unit, plan.model.name, plan.device.name)


def _twice(trials: TrialRunner, suggestion: Suggestion) -> Outcome:
    """The outcome; what the machine disturbed is measured once more."""
    outcome = trials.run(suggestion)[0]
    return trials.run(suggestion)[0] if outcome.status == "not_measured" else outcome


def _rows(plan: Plan, quality: QualityGuard, told: list[Observation]) -> tuple[PrecisionQuality, ...]:
    """What was measured, and why the rest was not."""
    rows = quality_rows(quality, plan.space, told)
    known = {row.name for row in rows}
    return (*rows, *(_failed(plan, o.outcome, o) for o in told if str(_class(plan, o)) not in known))


def _failed(plan: Plan, outcome: Outcome, observation: Observation) -> PrecisionQuality:
    verdict = "does not run" if outcome.status == "infeasible" else "not measured"
    return PrecisionQuality(str(_class(plan, observation)), verdict, outcome.reason, value=outcome.value)


def _class(plan: Plan, observation: Observation) -> object:
    return precision_class(plan.space, observation.suggestion.target)
