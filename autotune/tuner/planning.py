"""``autotune plan``: what a run would try, what it would leave out and what it would cost. Boots nothing.

The forecast rests on boots and points that were measured: this study's, else those of other studies beside it with
the same model, vLLM and host. Without any it says what it assumes.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from autotune.engine.model_shape import read_model_shape
from autotune.errors import AutotuneError
from autotune.search.budget import Budget
from autotune.search.domain import Domain
from autotune.search.planner import Outlook, outlook
from autotune.search.study import StudySearcher, open_study
from autotune.search.surrogate import make_sampler
from autotune.search.types import GIVEN, Observation
from autotune.store.lock import file_url
from autotune.store.models import BootRow, RunRow
from autotune.store.store import Store
from autotune.tuner.faults import named_faults
from autotune.tuner.feasible import Feasible
from autotune.tuner.first import first_configs
from autotune.tuner.physics import DevicePhysics
from autotune.tuner.plan import Plan
from autotune.tuner.prepare import prepare
from autotune.tuner.session import refuse_another_question
from autotune.tuner.settings import RunSettings
from autotune.tuner.spending import finalists_for, given, race_visits, study_budget

SAME = ("model", "vllm", "host")


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a run: its boots and its seconds, as forecast."""

    name: str
    boots: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """``parts`` in their order. ``rests_on`` says where ``boot_s``, ``race_boot_s`` and ``point_s`` are from."""

    parts: tuple[Part, ...]
    boot_s: float
    visit_s: float
    point_s: float
    rests_on: str

    @property
    def boots(self) -> int:
        """Boots of all parts."""
        return sum(part.boots for part in self.parts)

    @property
    def seconds(self) -> float:
        """Seconds of all parts."""
        return sum(part.seconds for part in self.parts)


@dataclass(frozen=True, slots=True)
class Ahead:
    """A run as it would go. ``told`` counts trials of this study that are done already."""

    plan: Plan
    outlook: Outlook
    forecast: Forecast
    told: int


def look_ahead(settings: RunSettings) -> Ahead:
    """What ``autotune run`` with these settings would do. Raises what it would raise before its first boot."""
    with named_faults():
        return _look(prepare(settings))


def _look(plan: Plan) -> Ahead:
    runs = _stored(plan)
    own = next((run for run in runs if run.study == plan.study), None)
    domain = Domain(plan.space, plan.space.defaults, plan.space.seeds)
    shape = read_model_shape(plan.model.folder) if plan.model.folder else None
    feasible = Feasible(plan, domain, shape)
    physics = DevicePhysics(plan, shape)
    prior = plan.objective.prior(physics) if physics.known else None
    sampler = make_sampler(plan.settings.sampler, domain, plan.objective.direction, prior)
    first = first_configs(plan, domain)
    history: list[Observation] = []
    if own:
        study = open_study(plan.study, plan.storage, plan.objective.direction)
        history = StudySearcher(study, domain, sampler, effective=plan.space.effective).history()
    seen = outlook(
        domain,
        first,
        sampler,
        feasible=feasible,
        prior=prior,
        history=history,
        effective=plan.space.effective,
        rng=np.random.default_rng((plan.settings.seed, len(history))),
    )
    return Ahead(plan, seen, _forecast(plan, runs, own, history), len(history))


def _forecast(plan: Plan, runs: list[RunRow], own: RunRow | None, history: list[Observation]) -> Forecast:
    boots, rests_on = _measured(plan, runs, own)
    budget = study_budget(plan, boots, own.spent_s if own else 0.0, len(history), lambda: 0.0)
    racing = given(plan)
    races = max(1, len(plan.objective.aspects))
    visits = races * race_visits(finalists_for(budget, racing), racing)
    budget.race_visits = visits
    parts = [*_given_parts(plan, budget, history)]
    trials = _trials(budget, sum(part.seconds for part in parts), len(parts))
    trial_s = budget.boot_s + budget.point_s + budget.stop_s
    parts += [Part("search", trials, trials * trial_s), Part("final race", visits, budget.reserve_s)]
    return Forecast(tuple(parts), budget.boot_s, budget.visit_s, budget.point_s, rests_on)


def _given_parts(plan: Plan, budget: Budget, history: list[Observation]) -> Iterator[Part]:
    """The default and the incumbents that were not measured yet."""
    told = [o.suggestion for o in history if o.suggestion.origin in GIVEN]
    engine_s = budget.boot_s + budget.stop_s
    if not any(s.origin == "baseline" for s in told):
        yield Part("baseline", 1, engine_s + plan.objective.blocks * budget.point_s)
    for incumbent in plan.incumbents:
        if not any(s.target == incumbent.config for s in told):
            yield Part(f"incumbent {incumbent.name}", 1, engine_s + budget.point_s)


def _trials(budget: Budget, given_s: float, given_boots: int) -> int:
    """Trials that fit beside what is given and raced."""
    limits = [] if budget.trials is None else [budget.trials - budget.trials_done - given_boots]
    if budget.left_s is not None:
        limits.append(int((budget.left_s - given_s) // (budget.boot_s + budget.point_s + budget.stop_s)))
    return max(0, min(limits, default=0))


def _measured(plan: Plan, runs: list[RunRow], own: RunRow | None) -> tuple[list[BootRow], str]:
    """Boots that a forecast may rest on, and whose they are."""
    if own and (boots := _good(own)):
        return boots, f"{len(boots)} boots of this study"
    others = [run for run in (*runs, *_beside(plan)) if run.study != plan.study]
    same = [run for run in others if all(run.identity.get(n) == plan.identity()[n] for n in SAME)]
    boots = [boot for run in same for boot in _good(run)]
    if boots:
        return boots, f"{len(boots)} boots of other studies with this model and vLLM on this host"
    guess = Budget()
    assumed = f"{guess.boot_guess_s:.0f} s a boot and {guess.point_guess_s:.0f} s a point are assumed"
    return [], f"nothing was measured here yet, so {assumed}"


def _good(run: RunRow) -> list[BootRow]:
    return [boot for boot in run.boots if boot.boot_s is not None and boot.failure is None]


def _stored(plan: Plan) -> list[RunRow]:
    """The studies of the storage. Raises ``UsageError`` where a run could not use its folder, storage or study."""
    folder = plan.folder
    folder.refuse_unwritable()
    runs = Store.look_into(plan.storage, (folder.root, folder.logs, folder.cache))
    for run in runs:
        if run.study == plan.study:
            refuse_another_question(run, plan)
    return runs


def _beside(plan: Plan) -> list[RunRow]:
    """Studies in folders beside this one; what cannot be read there is no fault of this study."""
    found: list[RunRow] = []
    for path in sorted(plan.folder.root.parent.glob("*/study.db")):
        if file_url(path) != plan.storage:
            with suppress(AutotuneError):
                found += Store.look_into(file_url(path))
    return found
