"""Every way to search that the benchmark compares, behind ask, tell and "what would you export now?"."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Protocol

import numpy as np
from surface import Array, Surface
from table import MeasuredTable

from autotune.search.domain import Domain
from autotune.search.roofline import Operating, Roofline, RooflinePrior
from autotune.search.samplers import Context, Proposal, RandomSampler, Sampler, TpeSampler
from autotune.search.study import StudySearcher, open_study
from autotune.search.surrogate import DEFAULT, SurrogateSampler, Tuning
from autotune.search.types import Observation, Outcome, Suggestion
from autotune.space.config import LaunchConfig

MARGIN = 0.08
Truth = Surface | MeasuredTable


class Arm(Protocol):
    def ask(self, running: LaunchConfig | None) -> Suggestion | None: ...

    def tell(self, suggestion: Suggestion, outcome: Outcome) -> None: ...

    def incumbent(self) -> LaunchConfig | None: ...


class ListArm:
    """Own boots in a given order; exports the best observed one that met its SLOs with ``margin``."""

    def __init__(self, configs: Iterator[LaunchConfig], margin: float = 0.0) -> None:
        self._configs = configs
        self._margin = margin
        self._trial = -1
        self._best: tuple[float, LaunchConfig] | None = None

    def ask(self, running: LaunchConfig | None) -> Suggestion | None:
        config = next(self._configs, None)
        self._trial += 1
        return None if config is None else Suggestion(self._trial, config, config, {}, "sampler")

    def tell(self, suggestion: Suggestion, outcome: Outcome) -> None:
        safe = outcome.value is not None and all(v <= -self._margin for v in outcome.violations.values())
        if safe and (self._best is None or outcome.value > self._best[0]):
            self._best = (outcome.value, suggestion.target)

    def incumbent(self) -> LaunchConfig | None:
        return self._best[1] if self._best else None


class SearchArm:
    """The product's own searcher with a sampler."""

    def __init__(self, searcher: StudySearcher, margin: float, live: bool) -> None:
        self._searcher = searcher
        self._margin = margin
        self._live = live

    def ask(self, running: LaunchConfig | None) -> Suggestion | None:
        return self._searcher.ask(running if self._live else None)

    def tell(self, suggestion: Suggestion, outcome: Outcome) -> None:
        self._searcher.tell(suggestion, outcome)

    def incumbent(self) -> LaunchConfig | None:
        best = self._searcher.finalists(1, self._margin)
        if best:
            return best[0].suggestion.target
        base = self._searcher.baseline()
        return None if base is None else base.suggestion.target

    def finalists(self, count: int) -> list[Observation]:
        return self._searcher.finalists(count, self._margin)


class _Forgetful:
    """TPE as it learns when a crash is told as FAIL: it never hears of it."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    def propose(self, context: Context) -> Proposal | None:
        kept = [o for o in context.history if o.outcome.status != "infeasible"]
        return self._sampler.propose(replace(context, history=kept))

    def estimates(self, history: Sequence[Observation]) -> None:
        return None


class ExactPhysics(RooflinePrior):
    """What no search has: a surface's true values, all but the bumps. It shows how much better physics could give."""

    def __init__(self, surface: Surface) -> None:
        super().__init__(self._known)
        self._surface = surface

    def _known(self, config: LaunchConfig, /) -> Operating:
        """The operating point with the value in place of its batch."""
        value = float(self._surface.smooth[self._surface.index(config)])
        return replace(self._surface.physics(config), batch=value)

    def fitted(self, history: Sequence[Observation]) -> Roofline:
        return Roofline()

    def log_values(self, model: Roofline, points: Array) -> Array:
        return np.asarray(np.log(points[:, 0]))


@dataclass(frozen=True, slots=True)
class Parts:
    """Which parts of our search are on."""

    planner: bool = True
    prior: bool = True
    live: bool = True
    seeds: bool = True
    margin: float = MARGIN
    sampler: str = "ours"
    tuning: Tuning = DEFAULT
    exact: bool = False


def ours(parts: Parts) -> Callable[[Truth, int], Arm]:
    def make(surface: Truth, seed: int) -> Arm:
        domain = Domain(surface.space, surface.defaults)
        searcher = StudySearcher(
            open_study(f"{seed}", None, "maximize"),
            domain,
            _sampler(parts, domain, surface),
            seed=seed,
            seeds=[("seed", c) for c in surface.rules_of_thumb()] if parts.seeds else [],
            slo_names=surface.slo_names,
            feasible=surface.feasible if parts.planner or isinstance(surface, MeasuredTable) else None,
        )
        return SearchArm(searcher, parts.margin, parts.live)

    return make


def _sampler(parts: Parts, domain: Domain, surface: Truth) -> Sampler:
    if parts.sampler == "random":
        return RandomSampler(domain)
    if parts.sampler == "tpe":
        return TpeSampler(domain, "maximize")
    if parts.sampler == "tpe-fail":
        return _Forgetful(TpeSampler(domain, "maximize"))
    known = parts.prior and isinstance(surface, Surface)
    prior = RooflinePrior(surface.physics) if known else None
    if parts.exact and isinstance(surface, Surface):
        prior = ExactPhysics(surface)
    return SurrogateSampler(domain, "maximize", prior, parts.tuning)


def random_arm(planner: bool, seeds: bool = False, margin: float = 0.0) -> Callable[[Truth, int], Arm]:
    """Uniform draws without repeats; with ``planner`` what the memory model refuses costs nothing."""

    def make(surface: Truth, seed: int) -> Arm:
        rng = np.random.default_rng(seed)

        def configs() -> Iterator[LaunchConfig]:
            yield LaunchConfig()
            yield from surface.rules_of_thumb() if seeds else ()
            yield from surface.shuffled(rng, planner)

        return ListArm(configs(), margin)

    return make


def default_arm(surface: Truth, seed: int) -> Arm:
    return ListArm(iter([LaunchConfig()]))


def grid_arm(surface: Truth, seed: int) -> Arm:
    """In the manner of auto_tune.sh: max-num-seqs by max-num-batched-tokens, nothing else."""
    names = ("max-num-seqs", "max-num-batched-tokens")
    values: Sequence[Sequence[object]] = [p.values for n in names for p in surface.space.parameters if p.name == n]

    def configs() -> Iterator[LaunchConfig]:
        for pair in product(*values):
            chosen = {n: v for n, v in zip(names, pair, strict=True) if v != surface.defaults[n]}
            yield LaunchConfig.of(chosen)

    return ListArm(configs())


FULL = Parts()
ARMS: dict[str, Callable[[Truth, int], Arm]] = {
    "default": default_arm,
    "random": random_arm(planner=False),
    "planner + random": random_arm(planner=True, margin=MARGIN),
    "planner + seeds + random": random_arm(planner=True, seeds=True, margin=MARGIN),
    "grid (auto_tune.sh)": grid_arm,
    "TPE, crash = FAIL": ours(Parts(False, False, False, False, 0.0, "tpe-fail")),
    "TPE + constraints": ours(Parts(False, False, False, False, 0.0, "tpe")),
    "planner + TPE": ours(Parts(True, False, False, False, MARGIN, "tpe")),
    "GP + constraints": ours(Parts(False, False, False, False, 0.0, "ours")),
    "ours": ours(FULL),
    "ours - planner": ours(replace(FULL, planner=False)),
    "ours + exact physics": ours(
        replace(FULL, exact=True, tuning=Tuning(effect=0.02, change_cost=0.0, switch_cost=0.0))
    ),
    "ours - roofline": ours(replace(FULL, prior=False)),
    "ours - live points": ours(replace(FULL, live=False)),
    "ours - seeds": ours(replace(FULL, seeds=False)),
    "ours - cost": ours(replace(FULL, tuning=Tuning(cost_power=0.0))),
    "ours - SLO margin": ours(replace(FULL, margin=0.0, tuning=Tuning(slo_margin=0.0))),
    "ours - model (TPE)": ours(replace(FULL, sampler="tpe", live=False)),
}
