"""What is known before anything is spent: seeds, what cannot start, what would be tried.

Arithmetic prunes and orders; measurements decide. The memory model (the engine room's, handed in) is used with
a margin that is learned: where a configuration that it called possible ran out of memory all the same, more
spare memory than that one had is asked for from then on, so that one cause costs one boot, not ten.
"""

import re
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autotune.search.domain import Domain
from autotune.search.roofline import Roofline, RooflinePrior
from autotune.search.samplers import Context, Sampler
from autotune.search.types import (
    GIVEN,
    Assignment,
    Effective,
    Feasibility,
    Fidelity,
    Observation,
    Origin,
    Predictor,
)
from autotune.space.config import LaunchConfig
from autotune.space.parameters import SearchSpace

MOST_SPARE = 0.06
STEP = 0.003
MODE, THROUGHPUT = "performance-mode", "throughput"
_NUMBERS = re.compile(r"\d[\d.,]*")


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
    """A configuration that would be tried.

    ``predicted`` is in the objective's unit, if physics says something; ``skipped`` is why it will be left out.
    """

    origin: Origin
    config: LaunchConfig
    predicted: float | None
    skipped: str = ""


@dataclass(frozen=True, slots=True)
class Impossible:
    """A kind of reason why configurations cannot start, how many of those looked at, and one of them.

    ``reason`` is that one's own, with its numbers.
    """

    reason: str
    count: int
    example: LaunchConfig


@dataclass(frozen=True, slots=True)
class Outlook:
    """``first`` are tried in this order; ``next_up`` would the sampler choose if it learned nothing on the way.

    ``impossible`` counts among ``looked_at`` random configurations; ``assignments`` is the size of the space.
    """

    assignments: int
    first: tuple[Candidate, ...]
    next_up: tuple[Candidate, ...]
    impossible: tuple[Impossible, ...]
    looked_at: int


def seeds(
    space: SearchSpace, incumbents: Sequence[LaunchConfig] = (), champions: Sequence[LaunchConfig] = ()
) -> list[tuple[Origin, LaunchConfig]]:
    """Configurations worth trying first: what runs in production, earlier winners, rules of thumb, vLLM's own modes."""
    found: list[tuple[Origin, LaunchConfig]] = [("incumbent", c) for c in incumbents]
    found += [("seed", c) for c in (*champions, *space.seeds)]
    modes = next((p.values for p in space.parameters if p.name == MODE), ())
    if THROUGHPUT in modes:
        found.append(("seed", LaunchConfig.of({MODE: THROUGHPUT})))
    return found


def outlook(
    domain: Domain,
    first: Sequence[tuple[Origin, LaunchConfig]],
    sampler: Sampler,
    *,
    feasible: Predictor | None = None,
    prior: RooflinePrior | None = None,
    history: Sequence[Observation] = (),
    effective: Effective = LaunchConfig.key,
    rng: np.random.Generator,
    looked_at: int = 1000,
    show: int = 5,
) -> Outlook:
    """What a run would do, at no cost; ``history`` of an earlier run sharpens it."""
    guard = MemoryGuard(feasible)
    guard.learn(history)
    model = prior.fitted(history) if prior else None
    drawn = {c.key(): c for c in (domain.config(domain.assigned(r)) for r in domain.draw(rng, looked_at))}
    started = [
        Candidate(origin, full, _predicted(prior, model, full), "" if origin in GIVEN else _why_not(guard, full))
        for origin, full in _merged(domain, first)
    ]
    seen = {effective(o.suggestion.target) for o in history} | {effective(c.config) for c in started}
    chosen = _proposed(domain, sampler, Context(history, lambda *_: True, rng), guard, effective, seen, show)
    return Outlook(
        assignments=domain.size,
        first=tuple(started),
        next_up=tuple(Candidate("sampler", c, _predicted(prior, model, c)) for c in chosen),
        impossible=_impossible([(config, guard(config)) for config in drawn.values()]),
        looked_at=len(drawn),
    )


def _proposed(
    domain: Domain,
    sampler: Sampler,
    context: Context,
    guard: MemoryGuard,
    effective: Effective,
    seen: set[Hashable],
    count: int,
) -> list[LaunchConfig]:
    """Proposals one after the other, each new and possible, from one and the same history."""

    def allowed(assignment: Assignment, fidelity: Fidelity) -> bool:
        config = domain.config(assignment)
        return effective(config) not in seen and guard(config).fits

    found: list[LaunchConfig] = []
    while len(found) < count and (proposal := sampler.propose(replace(context, allowed=allowed))) is not None:
        found.append(domain.config(proposal.assignment))
        seen.add(effective(found[-1]))
    return found


def _why_not(guard: MemoryGuard, config: LaunchConfig) -> str:
    verdict = guard(config)
    return "" if verdict.fits else verdict.reason or "predicted impossible"


def _merged(domain: Domain, first: Sequence[tuple[Origin, LaunchConfig]]) -> list[tuple[Origin, LaunchConfig]]:
    fixed = domain.space.fixed
    return [("baseline", fixed), *((origin, fixed.merged(config)) for origin, config in first)]


def _predicted(prior: RooflinePrior | None, model: Roofline | None, config: LaunchConfig) -> float | None:
    at = prior.physics(config) if prior else None
    return None if prior is None or model is None or at is None else float(np.exp(prior.log_value(model, at)))


def _impossible(verdicts: Sequence[tuple[LaunchConfig, Feasibility]]) -> tuple[Impossible, ...]:
    """Reasons that differ in their numbers only are one kind."""
    refused = [(_NUMBERS.sub("#", v.reason), v.reason, config) for config, v in verdicts if not v.fits]
    examples = {kind: (reason, config) for kind, reason, config in reversed(refused)}
    counts = Counter(kind for kind, _, _ in refused).most_common()
    return tuple(Impossible(examples[kind][0], count, examples[kind][1]) for kind, count in counts)
