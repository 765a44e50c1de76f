"""The search as an Optuna study that is asked and told.

The study in storage is the record: every decision is rebuilt from its trials, so a killed run goes on where
it stopped. Its trials always enter by one path, an enqueued full set of parameters that is then asked for,
whether they come from the baseline, a seed or a sampler. Rule by rule:

* a configuration at fault is told as COMPLETE with the worst value seen and a positive constraint. Optuna's
  samplers do not look at FAIL and would propose the same crash again;
* a machine at fault is told nothing: the trial stays open and is asked for once more. At the second
  time Optuna needs a state, and only then it becomes FAIL, which nothing here or there learns from;
* every trial has the same constraint keys, mirrored as user attributes for dashboards.
"""

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import optuna
from optuna.trial import FrozenTrial, Trial, TrialState

from autotune.errors import StoreError
from autotune.search.domain import Domain
from autotune.search.planner import MemoryGuard
from autotune.search.samplers import Context, Proposal, Sampler, constraints, distributions, parameters, worst_value
from autotune.search.types import (
    GIVEN,
    Assignment,
    Direction,
    Effective,
    Feasibility,
    Fidelity,
    Observation,
    Origin,
    Outcome,
    Predictor,
    Suggestion,
)
from autotune.space.config import LaunchConfig

MAX_ATTEMPTS = 2


def open_study(name: str, storage: str | None, direction: Direction) -> optuna.Study:
    """Create or open a study; ``storage`` is an SQLAlchemy URL, or None for memory only.

    Raises ``StoreError`` where the tables are another Optuna's.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        store = optuna.storages.RDBStorage(storage) if storage else None
    except RuntimeError as error:
        raise StoreError(f"the study's database cannot be used: {error}") from error
    return optuna.create_study(
        study_name=name, storage=store, direction=direction, load_if_exists=True, sampler=_unused_sampler()
    )


class StudySearcher:
    """A ``Searcher`` on an Optuna study: baseline, then incumbents and seeds, then the sampler.

    ``slo_names`` are the keys that every measured outcome's ``violations`` has. ``effective`` maps a config
    to what it really means for vLLM (two configs with equal meaning are tried once). ``feasible`` prunes what
    arithmetic says cannot start. Asks are deterministic under ``seed``, also across a restart.
    """

    def __init__(
        self,
        study: optuna.Study,
        domain: Domain,
        sampler: Sampler,
        *,
        seed: int = 0,
        seeds: Sequence[tuple[Origin, LaunchConfig]] = (),
        slo_names: Sequence[str] = (),
        effective: Effective = LaunchConfig.key,
        feasible: Predictor | None = None,
    ) -> None:
        self.domain = domain
        self._study = study
        self._from_earlier_runs = len(study.get_trials(deepcopy=False))
        self._sampler = sampler
        self._seed = seed
        self._slo_names = tuple(slo_names)
        self._effective = effective
        self._guard = MemoryGuard(feasible)
        self._distributions = distributions(domain)
        self._first = [("baseline", domain.space.fixed), *seeds]

    @property
    def direction(self) -> Direction:
        """Whether larger or smaller values win."""
        return "maximize" if self._study.direction is optuna.study.StudyDirection.MAXIMIZE else "minimize"

    def ask(self, running: LaunchConfig | None = None) -> Suggestion | None:
        """See ``Searcher.ask``."""
        trials = self._study.get_trials(deepcopy=False)
        if (unfinished := self._unfinished(trials)) is not None:
            return unfinished
        seen = {self._identity(_suggestion(t)) for t in trials if not self._tries_again(t)}
        inside = running if running is not None and self._inside(running) else None
        return self._next_first(seen) or self._next_sampled(seen, len(trials), inside)

    def tell(self, suggestion: Suggestion, outcome: Outcome) -> None:
        """See ``Searcher.tell``. Raises ValueError when SLO keys differ from the study's."""
        if outcome.status == "measured" and set(outcome.violations) != set(self._slo_names):
            raise ValueError(f"expected violations for {self._slo_names}, got {tuple(outcome.violations)}")
        trial = Trial(self._study, self._study.get_trials(deepcopy=False)[suggestion.trial]._trial_id)
        if outcome.status == "not_measured":
            self._postpone(trial, suggestion, outcome)
        else:
            self._finish(trial, outcome)

    def history(self) -> list[Observation]:
        """See ``Searcher.history``."""
        trials = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        return [observation for t in trials if (observation := _observation(t)) is not None]

    def finalists(self, count: int, slo_margin: float = 0.0) -> list[Observation]:
        """The best own boots that meet every SLO with ``slo_margin`` to spare, best first; never the baseline or an
        incumbent, which race anyway.

        Ordered by the sampler's estimate where it has one (it has seen the neighbours of a lucky number),
        else by the pessimistic end of each value (one standard error).
        """
        history = self._lessons()
        estimates = self._sampler.estimates(history)
        scores = estimates if estimates is not None else [self._pessimistic(o) for o in history]
        ready = [(s, i) for i, (s, o) in enumerate(zip(scores, history, strict=True)) if _candidate(o, slo_margin)]
        return [history[i] for _, i in sorted(ready, key=lambda pair: -pair[0])[:count]]

    def baseline(self) -> Observation | None:
        """What vLLM's own defaults gave, once told."""
        return next((o for o in self.history() if o.suggestion.origin == "baseline"), None)

    def no_baseline_because(self) -> str:
        """Why the defaults were not measured at the last time that was tried; empty where it was not tried."""
        trials = self._study.get_trials(deepcopy=False)
        reasons = [t.user_attrs.get("not_measured", "") for t in trials if t.user_attrs.get("origin") == "baseline"]
        return reasons[-1] if reasons else ""

    def verdict(self, config: LaunchConfig) -> Feasibility:
        """What arithmetic and experience say about a config; everything fits where nothing predicts."""
        return self._guard(config)

    def _unfinished(self, trials: Sequence[FrozenTrial]) -> Suggestion | None:
        """A trial that was queued, asked for or half told before (a restart, or a machine at fault)."""
        if any(t.state is TrialState.WAITING for t in trials):
            return self._start()
        for trial in (t for t in trials if t.state is TrialState.RUNNING):
            if "outcome" not in trial.user_attrs:
                return _suggestion(trial)
            self._finish(Trial(self._study, trial._trial_id), Outcome(**trial.user_attrs["outcome"]))
        return None

    def _tries_again(self, trial: FrozenTrial) -> bool:
        """Whether an earlier run could not measure the baseline: all else is compared with it."""
        failed = trial.state is TrialState.FAIL and trial.number < self._from_earlier_runs
        return failed and trial.user_attrs.get("origin") == "baseline"

    def _identity(self, suggestion: Suggestion) -> tuple[Hashable, Fidelity]:
        return self._effective(suggestion.target), suggestion.fidelity

    def _next_first(self, seen: set[tuple[Hashable, Fidelity]]) -> Suggestion | None:
        for origin, config in self._first:
            full = self.domain.space.fixed.merged(config)
            new = (self._effective(full), "own") not in seen
            if new and (origin in GIVEN or self.verdict(full).fits):
                return self._open(Suggestion(-1, full, full, self.domain.assignment(full), origin))
        return None

    def _next_sampled(
        self, seen: set[tuple[Hashable, Fidelity]], trials: int, running: LaunchConfig | None
    ) -> Suggestion | None:
        def allowed(assignment: Assignment, fidelity: Fidelity) -> bool:
            config = self.domain.config(assignment)
            key = self._effective(config)
            new = (key, "own") not in seen and (key, fidelity) not in seen
            return new and (fidelity == "live" or self.verdict(config).fits)

        history = self._lessons()
        self._guard.learn(history)
        rng = np.random.default_rng((self._seed, trials))
        engine = None if running is None else self.domain.assignment(running)
        proposal = self._sampler.propose(Context(history, allowed, rng, engine))
        return None if proposal is None else self._open(self._suggest(proposal, running))

    def _lessons(self) -> list[Observation]:
        """What the sampler may learn from: an incumbent with flags outside the space stands for no point in it."""
        return [o for o in self.history() if o.suggestion.origin != "incumbent" or self._inside(o.suggestion.target)]

    def _inside(self, config: LaunchConfig) -> bool:
        """Whether the space can express a config, whatever context length it serves."""
        length = {name: value for name, value in config.flags if name == "max-model-len"}
        known = self.domain.config(self.domain.assignment(config)).merged(LaunchConfig.of(length))
        return self._effective(known) == self._effective(config)

    def _suggest(self, proposal: Proposal, running: LaunchConfig | None) -> Suggestion:
        target = self.domain.config(proposal.assignment)
        live = {} if proposal.fidelity == "own" else self.domain.live_limits(proposal.assignment)
        config = running if live and running is not None else target
        return Suggestion(-1, config, target, proposal.assignment, "sampler", live, predicted=proposal.predicted)

    def _open(self, suggestion: Suggestion) -> Suggestion:
        chosen = parameters(self.domain, suggestion.assignment)
        self._study.enqueue_trial(chosen, user_attrs=_attributes(suggestion))
        return self._start()

    def _start(self) -> Suggestion:
        number = self._study.ask(self._distributions).number
        return _suggestion(self._study.get_trials(deepcopy=False)[number])

    def _finish(self, trial: Trial, outcome: Outcome) -> None:
        """Tell in an order that a kill between any two steps cannot spoil: the stored outcome comes first."""
        trial.set_user_attr("outcome", asdict(outcome))
        limits = constraints(outcome, self._slo_names)
        trial.set_user_attr("constraints", limits)
        for key in limits.keys() - trial.constraints.keys():
            trial.set_constraint(key, limits[key])
        self._study.tell(trial.number, self._worst() if outcome.value is None else outcome.value)

    def _postpone(self, trial: Trial, suggestion: Suggestion, outcome: Outcome) -> None:
        trial.set_user_attr("not_measured", outcome.reason)
        if suggestion.attempt < MAX_ATTEMPTS:
            trial.set_user_attr("attempt", suggestion.attempt + 1)
        else:
            self._study.tell(trial.number, state=TrialState.FAIL)

    def _worst(self) -> float:
        return worst_value([v for o in self.history() if (v := o.outcome.value) is not None], self.direction)

    def _pessimistic(self, observation: Observation) -> float:
        value, error = observation.outcome.value or 0.0, observation.outcome.value_se or 0.0
        return value - error if self.direction == "maximize" else -(value + error)


def _unused_sampler() -> optuna.samplers.BaseSampler:
    """Every parameter is enqueued, so the study's own sampler never chooses anything."""
    return optuna.samplers.RandomSampler(seed=0)


def _candidate(observation: Observation, slo_margin: float) -> bool:
    outcome, suggestion = observation.outcome, observation.suggestion
    own = suggestion.fidelity == "own" and suggestion.origin not in GIVEN and outcome.status == "measured"
    return own and all(v <= -slo_margin for v in outcome.violations.values())


def _attributes(suggestion: Suggestion) -> dict[str, Any]:
    return {
        "origin": suggestion.origin,
        "attempt": suggestion.attempt,
        "assignment": json.dumps(suggestion.assignment),
        "live": json.dumps(suggestion.live),
        "predicted": suggestion.predicted,
        "config": _json(suggestion.config),
        "target": _json(suggestion.target),
    }


def _json(config: LaunchConfig) -> str:
    return json.dumps({"flags": dict(config.flags), "env": dict(config.env)})


def _config(text: str) -> LaunchConfig:
    stored: Mapping[str, Any] = json.loads(text)
    return LaunchConfig.of(stored["flags"], stored["env"])


def _suggestion(trial: FrozenTrial) -> Suggestion:
    attrs = trial.user_attrs
    return Suggestion(
        trial=trial.number,
        config=_config(attrs["config"]),
        target=_config(attrs["target"]),
        assignment=json.loads(attrs["assignment"]),
        origin=attrs["origin"],
        live=json.loads(attrs["live"]),
        attempt=attrs["attempt"],
        predicted=attrs["predicted"],
    )


def _observation(trial: FrozenTrial) -> Observation | None:
    if "outcome" not in trial.user_attrs:
        return None
    return Observation(_suggestion(trial), Outcome(**trial.user_attrs["outcome"]))
