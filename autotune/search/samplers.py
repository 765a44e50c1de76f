"""What to try next, given what was seen: one small interface, several ways.

A sampler sees the told history and returns an assignment. It keeps no state of its own: its randomness
comes from the caller, so that a resumed study goes on exactly as it would have. ``random`` is the honest
arm that every other one has to beat. ``tpe`` is Optuna's sampler on a throw-away study that is rebuilt from
the history each time: Optuna gives a trial to whoever asks and never takes one back, while we must be
able to pass over a duplicate or an impossible configuration at no cost.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import FrozenTrial, create_trial

from autotune.search.domain import Axis, Domain
from autotune.search.types import Assignment, Direction, Fidelity, Observation, Outcome

TRIES = 400


@dataclass(frozen=True, slots=True)
class Context:
    """What a sampler may look at.

    ``allowed`` says whether an assignment is new and can start, for a live point or for an own boot.
    ``running`` is the assignment of the engine that is up and takes live limits, if there is one.
    """

    history: Sequence[Observation]
    allowed: Callable[[Assignment, Fidelity], bool]
    rng: np.random.Generator
    running: Assignment | None = None


@dataclass(frozen=True, slots=True)
class Proposal:
    """An assignment to measure, in an own boot or live in the running engine."""

    assignment: Assignment
    fidelity: Fidelity = "own"
    predicted: float | None = None


class Sampler(Protocol):
    """Proposes what ``context.allowed`` accepts, or None when it finds nothing worth trying."""

    def propose(self, context: Context) -> Proposal | None: ...

    def estimates(self, history: Sequence[Observation]) -> Sequence[float] | None:
        """A score per observation, larger is better, for choosing finalists; None: only the numbers count."""


class RandomSampler:
    """Uniform over the allowed assignments."""

    def __init__(self, domain: Domain) -> None:
        self._domain = domain

    def propose(self, context: Context) -> Proposal | None:
        """See ``Sampler.propose``."""
        draws = max(TRIES, 4 * min(self._domain.size, 5000))
        drawn = (self._domain.sample(context.rng) for _ in range(draws))
        return next((Proposal(a) for a in drawn if context.allowed(a, "own")), None)

    def estimates(self, history: Sequence[Observation]) -> None:
        """See ``Sampler.estimates``."""


class TpeSampler:
    """Optuna's TPE with constraints; falls back to uniform draws when it only repeats itself."""

    def __init__(self, domain: Domain, direction: Direction, start_up: int = 6) -> None:
        self._domain = domain
        self._direction = direction
        self._start_up = start_up
        self._distributions = distributions(domain)

    def propose(self, context: Context) -> Proposal | None:
        """See ``Sampler.propose``."""
        if not self._domain.axes:
            return None
        study = self._shadow(context.history, int(context.rng.integers(2**31)))
        for _ in range(20):
            trial = study.ask(self._distributions)
            assignment = self._domain.decode({n: _code(v) for n, v in trial.params.items()})
            if context.allowed(assignment, "own"):
                return Proposal(assignment)
        return RandomSampler(self._domain).propose(context)

    def estimates(self, history: Sequence[Observation]) -> None:
        """See ``Sampler.estimates``."""

    def _shadow(self, history: Sequence[Observation], seed: int) -> optuna.Study:
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=self._start_up)
        study = optuna.create_study(direction=self._direction, sampler=sampler)
        study.add_trials(shadow_trials(self._domain, self._distributions, history, self._direction))
        return study


def distributions(domain: Domain) -> dict[str, BaseDistribution]:
    """Optuna's view of the axes: codes as integers where order means something, else categories."""
    return {axis.name: _distribution(axis) for axis in domain.axes}


def parameters(domain: Domain, assignment: Assignment) -> dict[str, int | str]:
    """Optuna's parameter values of an assignment."""
    codes = domain.codes(assignment)
    return {a.name: codes[a.name] if a.numeric else _label(codes[a.name], a) for a in domain.axes}


def shadow_trials(
    domain: Domain,
    dists: dict[str, BaseDistribution],
    history: Sequence[Observation],
    direction: Direction,
) -> list[FrozenTrial]:
    """The history as complete trials; infeasible ones get the worst value seen and a positive constraint."""
    worst = worst_value([o.outcome.value for o in history if o.outcome.value is not None], direction)
    keys = sorted({k for o in history for k in o.outcome.violations})
    return [
        create_trial(
            value=o.outcome.value if o.outcome.value is not None else worst,
            params=parameters(domain, domain.canonical(o.suggestion.assignment)),
            distributions=dists,
            constraints=constraints(o.outcome, keys),
        )
        for o in history
    ]


def constraints(outcome: Outcome, slo_names: Sequence[str]) -> dict[str, float]:
    """The same keys for every trial; above zero is infeasible."""
    started = outcome.status == "measured"
    missed = outcome.margin if outcome.margin is not None else max(outcome.violations.values(), default=1.0)
    starts = -1.0 if started else max(missed, 1e-3)
    return {"starts": starts, **{n: outcome.violations.get(n, 0.0) if started else 1.0 for n in slo_names}}


def worst_value(values: Sequence[float], direction: Direction) -> float:
    """The worst value measured so far; a number worse than any real one before the first."""
    if not values:
        return -1.0 if direction == "maximize" else 1e9
    return min(values) if direction == "maximize" else max(values)


def _distribution(axis: Axis) -> BaseDistribution:
    if axis.numeric:
        return IntDistribution(0, len(axis.values) - 1)
    return CategoricalDistribution([_label(i, axis) for i in range(len(axis.values))])


def _label(code: int, axis: Axis) -> str:
    value = axis.values[code]
    return f"{code}:{'default' if value is None else value}"


def _code(value: int | str) -> int:
    return value if isinstance(value, int) else int(value.split(":", 1)[0])
