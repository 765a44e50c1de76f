"""The values that the search and its caller exchange.

The caller asks for a ``Suggestion``, boots and measures it, and tells an ``Outcome``. An outcome has one
of three meanings, and the search treats them differently on purpose:

* ``measured``: a number with its uncertainty, and how far each SLO was missed (if it was).
* ``infeasible``: the configuration is at fault (out of memory, refused by vLLM). It is knowledge: the
  sampler learns to keep away, by how much where a margin is known.
* ``not_measured``: the machine is at fault, or the number failed its checks. It teaches nothing.
"""

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from autotune.space.config import FlagValue, LaunchConfig

Assignment = Mapping[str, FlagValue | None]
Status = Literal["measured", "infeasible", "not_measured"]
Fidelity = Literal["own", "live"]
Direction = Literal["maximize", "minimize"]
Origin = Literal["baseline", "incumbent", "seed", "sampler", "confirm"]
# Measured whatever arithmetic says, and raced whatever the search saw.
GIVEN: tuple[Origin, ...] = ("baseline", "incumbent")
Effective = Callable[[LaunchConfig], Hashable]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a suggestion gave.

    ``value`` and ``value_se`` are in the objective's unit. ``violations`` holds one entry per SLO, as a
    fraction of its limit: 0.1 is ten per cent above it, -0.1 ten per cent of room; of an infeasible outcome, by how
    much it missed what it could not give. ``margin`` says by which fraction of the resource an infeasible
    configuration missed (memory short / memory total). ``aspects`` are further figures of the same trial. ``cost_s`` is
    the machine time spent on it, ``boot_s`` the part of it that went into a boot and a stop (0 in a running
    engine). ``fidelity`` is ``live`` when limits were lowered in a running engine.
    """

    status: Status
    value: float | None = None
    value_se: float | None = None
    violations: Mapping[str, float] = field(default_factory=dict)
    aspects: Mapping[str, float] = field(default_factory=dict)
    margin: float | None = None
    cost_s: float = 0.0
    boot_s: float = 0.0
    fidelity: Fidelity = "own"
    reason: str = ""

    def __post_init__(self) -> None:
        numbers = [self.cost_s, self.boot_s, *self.violations.values(), *self.aspects.values()]
        numbers += [x for x in (self.value, self.value_se, self.margin) if x is not None]
        if not all(math.isfinite(x) for x in numbers):
            raise ValueError(f"an outcome holds finite numbers only, not {numbers}")
        if (self.status == "measured") != (self.value is not None):
            raise ValueError(f"a value belongs to a measured outcome and to no other, not to '{self.status}'")

    @property
    def meets_slo(self) -> bool:
        """Measured, and no SLO was missed."""
        return self.status == "measured" and all(v <= 0 for v in self.violations.values())


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One trial to run.

    ``config`` is what to boot; ``live`` are limits to lower inside that engine (empty: measure as booted).
    Suggestions with equal ``config`` can share one boot. ``target`` is the configuration that the trial
    stands for: what would be exported if it won. ``predicted`` is the expected value, if there is one.
    """

    trial: int
    config: LaunchConfig
    target: LaunchConfig
    assignment: Assignment
    origin: Origin
    live: Mapping[str, int] = field(default_factory=dict)
    attempt: int = 1
    predicted: float | None = None

    @property
    def fidelity(self) -> Fidelity:
        """``live`` where limits are lowered in a running engine."""
        return "live" if self.live else "own"


@dataclass(frozen=True, slots=True)
class Observation:
    """A suggestion with what it gave."""

    suggestion: Suggestion
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Feasibility:
    """What arithmetic says before a boot; ``margin`` is the spare (negative: missing) share of the resource."""

    fits: bool
    reason: str = ""
    margin: float | None = None


class Predictor(Protocol):
    """Says whether a configuration can start at all; it prunes, it never decides."""

    def __call__(self, config: LaunchConfig, /) -> Feasibility: ...


class Searcher(Protocol):
    """Chooses what to try next."""

    def ask(self, running: LaunchConfig | None = None) -> Suggestion | None:
        """The next trial, or None when nothing promising is left.

        ``running`` is what the engine that is up now was booted with, if it takes live limits: then the next
        trial may be a live point in it. Until a suggestion is told, ``ask`` gives the same one again (also after
        a restart).
        """

    def tell(self, suggestion: Suggestion, outcome: Outcome) -> None:
        """Record what a suggestion gave."""

    def history(self) -> list[Observation]:
        """Every told trial that means something, oldest first."""
