"""What an objective is, and the parts that objectives are made of.

An objective loads a running engine through ``Bench`` and gives a ``Reading``; everything that depends on what is to
be won (direction, unit, load, figure, what is infeasible) is asked of it and of nobody else. The five that
``--objective`` knows are in ``objectives``.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np

from autotune.load.capacity import Capacity
from autotune.load.phases import Rule
from autotune.load.slo import Slo
from autotune.load.stats import Z95
from autotune.load.stopping import clearly_fewer_tokens
from autotune.load.types import LoadSpec, Measurement
from autotune.search.noise import PRIOR_SIGMA
from autotune.search.roofline import Physics, RooflinePrior
from autotune.search.types import Direction
from autotune.tuner.loader import Loaded

SLO_MARGIN = 0.08
NEVER = 9.99
WARMUP_S = 2.0
Bracket = tuple[float | None, float | None]
UNKNOWN: Bracket = (None, None)


class Bench(Protocol):
    """What an objective may ask of a running engine (``loader.Loader``)."""

    last: Loaded | None

    def measure(
        self, load: LoadSpec, *, tag: str = "", rules: Sequence[Rule] = (), slos: Sequence[Slo] = ()
    ) -> Loaded: ...

    def capacity(
        self,
        slos: Sequence[Slo],
        *,
        bracket: Bracket,
        window_s: float,
        tolerance: float,
        processes: int,
        lag_limit_ms: float,
    ) -> Capacity: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long a point may take, and what is known already.

    A window lasts ``shortest_s`` to ``longest_s`` and ends when the figure is known within ``precision``. ``race``
    is set for points that decide. ``beat`` holds the best figures so far (by aspect, the value itself under ""): a
    point of the search that is clearly worse ends early. ``bracket`` is the incumbent's, for goodput.
    ``lag_limit_ms`` is how far sends at a rate may fall behind their schedule.
    """

    shortest_s: float
    longest_s: float
    precision: float
    race: bool = False
    beat: Mapping[str, float] = field(default_factory=dict)
    bracket: Bracket = UNKNOWN
    lag_limit_ms: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a point says in the objective's terms.

    ``value`` None: not measured (``problem`` says why), or out of reach (``infeasible`` does). ``violations`` holds
    each SLO's excess as a fraction of its limit, below zero where there is room. ``aspects`` are further figures of
    the point that meet the SLOs. ``details`` are plain values for the record.
    """

    measurement: Measurement | None
    value: float | None = None
    value_se: float | None = None
    violations: Mapping[str, float] = field(default_factory=dict)
    infeasible: str = ""
    problem: str = ""
    aspects: Mapping[str, float] = field(default_factory=dict)
    bracket: Bracket = UNKNOWN
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def missed(self) -> str:
        """The SLOs that were missed and by how much, in words; empty where none was."""
        if self.infeasible:
            return self.infeasible
        return "; ".join(misses(self.violations, self.measurement))


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective(ABC):
    """One objective, fully decided. ``slos`` are the person's; ``processes`` client processes (0 = as needed).

    ``blocks`` is how often the baseline is measured, ``worth`` the smallest gain (fraction) that justifies a change,
    ``pick_margin`` the share of each limit that what is picked for the race must have to spare.
    """

    name: ClassVar[str]
    direction: ClassVar[Direction] = "maximize"
    unit: ClassVar[str] = "tok/s"
    blocks: ClassVar[int] = 3
    worth: ClassVar[float] = 0.01
    pick_margin: ClassVar[float] = SLO_MARGIN
    aspects: ClassVar[tuple[str, ...]] = ()
    """Names of the figures that are raced one by one; empty where the value itself is."""

    slos: tuple[Slo, ...] = ()
    processes: int = 1

    def title(self, aspect: str = "") -> str:
        """Name, options and SLOs, for people and for ``objectives.asked_before``."""
        name = f"{self.name}/{aspect}" if aspect else self.name
        under = f" under {', '.join(map(str, self.slos))}" if self.slos else ""
        return "".join([name, *(f" at {exact(value)}" for value in self.options.values()), under])

    @property
    @abstractmethod
    def load(self) -> str:
        """The load in words."""

    @abstractmethod
    def take(self, bench: Bench, effort: Effort) -> Reading:
        """Load the engine as the objective demands and read the figure."""

    @property
    def constraints(self) -> tuple[Slo, ...]:
        """SLOs that the search learns as constraints beside the value."""
        return self.slos

    @property
    def options(self) -> Mapping[str, float]:
        """What else was asked, by name: part of the study's identity."""
        return {}

    def noise(self, window_s: float) -> float:
        """The spread between boots (fraction) that is assumed before it is known, for windows of ``window_s``."""
        return PRIOR_SIGMA

    def load_of(self, aspect: str) -> str:
        """The load of a figure, in words."""
        return self.load

    def prior(self, physics: Physics) -> RooflinePrior | None:
        """What physics expects of the value; None where the roofline says nothing about it."""
        return None

    def identity(self) -> dict[str, Any]:
        """What of the objective must stay the same for a study to be resumed."""
        return {"objective": self.name, "slos": [str(slo) for slo in self.slos] or None, **self.options}

    @property
    def slug(self) -> str:
        """A study's name part that tells this objective from the same one with other options."""
        return "-".join([self.name, *map(exact, self.options.values()), *map(str, self.slos)])


def exact(number: float) -> str:
    """The digits that tell a number from every other, without an exponent, such as ``4`` and ``0.0015``."""
    return np.format_float_positional(number, trim="-")


def misses(violations: Mapping[str, float], measurement: Measurement | None = None) -> list[str]:
    """One phrase for each limit that is exceeded, such as ``ttft_p95=500ms missed by 22 % (610 ms)``."""
    got = {r.slo: r.value_ms for r in measurement.slos} if measurement else {}
    found = []
    for name, excess in violations.items():
        if excess > 0:
            by = "requests that never ended" if excess >= NEVER else f"{100 * excess:.0f} %"
            value = got.get(name)
            found.append(f"{name} missed by {by}" + (f" ({value:.0f} ms)" if value is not None else ""))
    return found


def closed(concurrency: int, effort: Effort, processes: int) -> LoadSpec:
    """A closed loop for as long as ``effort`` says."""
    return LoadSpec.closed(
        concurrency,
        min_s=effort.shortest_s,
        max_s=effort.longest_s,
        warmup_min_s=min(WARMUP_S, effort.shortest_s),
        precision=effort.precision,
        processes=processes,
    )


def unless_worse(best: float | None, effort: Effort) -> tuple[Rule, ...]:
    """The rule that ends a point of the search early once it is clearly worse than the best so far."""
    if best is None or effort.race:
        return ()
    return (clearly_fewer_tokens(best, shortest_s=min(3.0, effort.shortest_s)),)


def output_rate(measurement: Measurement) -> tuple[float, float | None]:
    """Output tokens per second with its standard error."""
    estimate = measurement.output_tokens_per_s
    if estimate.low is None or estimate.high is None:
        return estimate.value, None
    return estimate.value, (estimate.high - estimate.low) / 2 / Z95


def reading(loaded: Loaded, value: float, error: float | None) -> Reading:
    """A plain figure of one measurement."""
    found = loaded.measurement
    if not found.valid or value <= 0:
        problem = "; ".join(found.problems) or "not measured: nothing was answered"
        return Reading(measurement=found, problem=problem, details=loaded.facts())
    return Reading(measurement=found, value=value, value_se=error, violations=violations(found), details=loaded.facts())


def violations(measurement: Measurement) -> dict[str, float]:
    """By which fraction of its limit each SLO is exceeded; below zero where there is room."""
    return {r.slo: _excess(r.slo, r.value_ms) for r in measurement.slos}


def _excess(slo: str, value_ms: float | None) -> float:
    return NEVER if value_ms is None else min(value_ms / Slo.parse(slo).limit_ms - 1, NEVER)
