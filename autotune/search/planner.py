"""What is known before anything is spent: seeds, what cannot start, what physics likes, what it would cost.

Arithmetic prunes and orders; measurements decide. The memory model (the engine room's, handed in) is used with
a margin that is learned: where a configuration that it called possible ran out of memory all the same, more
spare memory than that one had is asked for from then on, so that one cause costs one boot, not ten.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.search.budget import Budget
from autotune.search.domain import Domain
from autotune.search.roofline import Roofline, RooflinePrior
from autotune.search.types import Direction, Feasibility, Observation, Origin, Predictor
from autotune.space.config import LaunchConfig
from autotune.space.parameters import SearchSpace

MOST_SPARE = 0.06
STEP = 0.003


class MemoryGuard:
    """A ``Predictor`` that learns how much its memory model can be trusted.

    ``learn`` takes the told history; outcomes without a margin have nothing to do with memory.
    """

    def __init__(self, predict: Predictor | None) -> None:
        self._predict = predict
        self._needed = 0.0

    def __call__(self, config: LaunchConfig, /) -> Feasibility:
        """Whether the config starts, with the spare memory that experience asks for."""
        if self._predict is None:
            return Feasibility(True)
        said = self._predict(config)
        if said.fits and said.margin is not None and said.margin < self._needed:
            return Feasibility(False, f"less than {self._needed:.1%} of memory to spare, and that failed", said.margin)
        return said

    def learn(self, history: Sequence[Observation]) -> None:
        """Ask for more spare memory than any configuration had that ran out of it."""
        if self._predict is None:
            return
        short = [o for o in history if o.outcome.status == "infeasible" and o.outcome.margin is not None]
        spares = [self._predict(o.suggestion.config).margin for o in short]
        needed = max((s for s in spares if s is not None), default=-1.0)
        self._needed = min(needed + STEP, MOST_SPARE) if needed >= 0 else 0.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A configuration that would be tried; ``predicted`` is in the objective's unit, if physics says something."""

    origin: Origin
    config: LaunchConfig
    predicted: float | None


@dataclass(frozen=True, slots=True)
class Impossible:
    """A reason why configurations cannot start, how many of those looked at, and one of them."""

    reason: str
    count: int
    example: LaunchConfig


@dataclass(frozen=True, slots=True)
class Plan:
    """``first`` are tried in this order; ``likely`` are the best by physics among ``looked_at`` random ones.

    ``boots`` and ``seconds`` forecast the whole run from measured boots (or a guess before the first).
    """

    assignments: int
    first: tuple[Candidate, ...]
    likely: tuple[Candidate, ...]
    impossible: tuple[Impossible, ...]
    looked_at: int
    boots: int | None
    seconds: float | None


def seeds(
    space: SearchSpace, incumbent: LaunchConfig | None = None, champions: Sequence[LaunchConfig] = ()
) -> list[tuple[Origin, LaunchConfig]]:
    """Configurations worth trying first: what runs in production, earlier winners, rules of thumb, vLLM's own modes."""
    found: list[tuple[Origin, LaunchConfig]] = [] if incumbent is None else [("incumbent", incumbent)]
    found += [("seed", c) for c in (*champions, *space.seeds)]
    modes = next((p.values for p in space.parameters if p.name == "performance-mode"), ())
    if "throughput" in modes:
        found.append(("seed", LaunchConfig.of({"performance-mode": "throughput"})))
    return found


def plan(
    domain: Domain,
    first: Sequence[tuple[Origin, LaunchConfig]],
    budget: Budget,
    *,
    direction: Direction = "maximize",
    feasible: Predictor | None = None,
    prior: RooflinePrior | None = None,
    history: Sequence[Observation] = (),
    rng: np.random.Generator,
    looked_at: int = 1000,
    show: int = 8,
) -> Plan:
    """What a run would do, at no cost; ``history`` of an earlier run sharpens it."""
    guard = MemoryGuard(feasible)
    guard.learn(history)
    model = prior.fitted(history) if prior else None
    drawn = {c.key(): c for c in (domain.config(domain.assigned(r)) for r in domain.draw(rng, looked_at))}
    verdicts = [(config, guard(config)) for config in drawn.values()]
    fitting = [Candidate("sampler", c, _predicted(prior, model, c)) for c, v in verdicts if v.fits]
    known = sorted((c for c in fitting if c.predicted is not None), key=lambda c: c.predicted or 0.0)
    likely = known[::-1] if direction == "maximize" else known
    trials = budget.trials_left()
    boots = None if trials is None else trials + budget.race_visits
    return Plan(
        assignments=domain.size,
        first=tuple(
            Candidate(origin, full, _predicted(prior, model, full))
            for origin, full in _merged(domain, first)
            if origin == "baseline" or guard(full).fits
        ),
        likely=tuple(likely[:show]),
        impossible=_impossible(verdicts),
        looked_at=len(drawn),
        boots=boots,
        seconds=None if boots is None else boots * (budget.boot_s + budget.point_s),
    )


def _merged(domain: Domain, first: Sequence[tuple[Origin, LaunchConfig]]) -> list[tuple[Origin, LaunchConfig]]:
    fixed = domain.space.fixed
    return [("baseline", fixed), *((origin, fixed.merged(config)) for origin, config in first)]


def _predicted(prior: RooflinePrior | None, model: Roofline | None, config: LaunchConfig) -> float | None:
    at = prior.physics(config) if prior else None
    return None if prior is None or model is None or at is None else float(np.exp(prior.log_value(model, at)))


def _impossible(verdicts: Sequence[tuple[LaunchConfig, Feasibility]]) -> tuple[Impossible, ...]:
    refused = [(verdict.reason, config) for config, verdict in verdicts if not verdict.fits]
    examples = dict(reversed(refused))
    return tuple(Impossible(reason, n, examples[reason]) for reason, n in Counter(r for r, _ in refused).most_common())
