"""When requests are sent in an open loop: arrival processes as values that yield scheduled times.

An arrival process says how many seconds after the start of the load each request is due, whatever the
server does. ``times(rng)`` yields growing arrays of such times without end (or until a trace is over).

    Poisson    independent gaps, the usual model of many independent users
    Gamma      gaps with a coefficient of variation other than 1 (``burstiness`` = 1 / cv²; 1 is Poisson)
    Constant   equal gaps
    Ramp       Poisson whose rate moves linearly from one value to another, then stays there
    Replay     the times of a trace, optionally faster or slower
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from autotune.errors import UsageError

Times = npt.NDArray[np.float64]
BLOCK = 256
SLOWEST_PER_S, FASTEST_PER_S = 0.001, 100_000.0


def checked_rate(rate_per_s: float) -> float:
    """A rate that a person gave. Raises ``UsageError`` where no client can send at it."""
    if not SLOWEST_PER_S <= rate_per_s <= FASTEST_PER_S:
        raise UsageError(
            f"--rate {rate_per_s:.12g} is no rate to send requests at. "
            f"Give {SLOWEST_PER_S:g} to {FASTEST_PER_S:.0f} requests per second, such as --rate 4."
        )
    return rate_per_s


class Arrival(Protocol):
    """A process that schedules requests. ``rate_per_s`` is its long-run mean rate."""

    @property
    def rate_per_s(self) -> float:
        """Mean arrivals per second once any ramp is over."""

    def times(self, rng: np.random.Generator) -> Iterator[Times]:
        """Blocks of due times in seconds from the start, never decreasing."""

    def at_rate(self, rate_per_s: float) -> "Arrival":
        """The same process with another mean rate."""

    def __str__(self) -> str: ...


def _cumulated(gaps: Iterator[Times]) -> Iterator[Times]:
    last = 0.0
    for block in gaps:
        times = last + np.cumsum(block)
        last = float(times[-1])
        yield times


@dataclass(frozen=True, slots=True)
class Poisson:
    """Independent, exponentially distributed gaps."""

    rate_per_s: float

    def times(self, rng: np.random.Generator) -> Iterator[Times]:
        """Blocks of due times in seconds."""
        return _cumulated(rng.exponential(1 / self.rate_per_s, BLOCK) for _ in _forever())

    def at_rate(self, rate_per_s: float) -> "Poisson":
        """Poisson with another rate."""
        return replace(self, rate_per_s=rate_per_s)

    def __str__(self) -> str:
        return f"Poisson {self.rate_per_s:.4g} req/s"


@dataclass(frozen=True, slots=True)
class Gamma:
    """Gamma distributed gaps; ``burstiness`` below 1 sends requests in bursts, above 1 more evenly."""

    rate_per_s: float
    burstiness: float

    def times(self, rng: np.random.Generator) -> Iterator[Times]:
        """Blocks of due times in seconds."""
        scale = 1 / (self.rate_per_s * self.burstiness)
        return _cumulated(rng.gamma(self.burstiness, scale, BLOCK) for _ in _forever())

    def at_rate(self, rate_per_s: float) -> "Gamma":
        """The same burstiness at another rate."""
        return replace(self, rate_per_s=rate_per_s)

    def __str__(self) -> str:
        return f"gamma {self.rate_per_s:.4g} req/s, burstiness {self.burstiness:g}"


@dataclass(frozen=True, slots=True)
class Constant:
    """Equal gaps."""

    rate_per_s: float

    def times(self, rng: np.random.Generator) -> Iterator[Times]:
        """Blocks of due times in seconds; ``rng`` is not used."""
        for block in _forever():
            yield (np.arange(BLOCK) + block * BLOCK + 1) / self.rate_per_s

    def at_rate(self, rate_per_s: float) -> "Constant":
        """Equal gaps at another rate."""
        return replace(self, rate_per_s=rate_per_s)

    def __str__(self) -> str:
        return f"constant {self.rate_per_s:.4g} req/s"


@dataclass(frozen=True, slots=True)
class Ramp:
    """Poisson whose rate goes linearly from ``start_per_s`` to ``rate_per_s`` in ``ramp_s`` seconds.

    Unit-rate arrivals are mapped through the inverse of the integrated rate, which is exact.
    """

    start_per_s: float
    rate_per_s: float
    ramp_s: float

    def times(self, rng: np.random.Generator) -> Iterator[Times]:
        """Blocks of due times in seconds."""
        for units in _cumulated(rng.exponential(1.0, BLOCK) for _ in _forever()):
            yield self._when(units)

    def _when(self, units: Times) -> Times:
        slope = (self.rate_per_s - self.start_per_s) / self.ramp_s
        in_ramp = (self.start_per_s + self.rate_per_s) / 2 * self.ramp_s
        after = self.ramp_s + (units - in_ramp) / self.rate_per_s
        if slope == 0:
            return units / self.rate_per_s
        root = np.sqrt(np.maximum(self.start_per_s**2 + 2 * slope * np.minimum(units, in_ramp), 0))
        during = (root - self.start_per_s) / slope
        return np.where(units < in_ramp, during, after)

    def at_rate(self, rate_per_s: float) -> "Ramp":
        """The same shape of ramp that ends at another rate."""
        factor = rate_per_s / self.rate_per_s
        return replace(self, start_per_s=self.start_per_s * factor, rate_per_s=rate_per_s)

    def __str__(self) -> str:
        return f"ramp {self.start_per_s:.4g} to {self.rate_per_s:.4g} req/s in {self.ramp_s:g} s"


@dataclass(frozen=True, slots=True)
class Replay:
    """The due times of a trace (seconds, sorted), played ``speed`` times as fast; ends with the trace."""

    at_s: tuple[float, ...]
    speed: float = 1.0

    @property
    def rate_per_s(self) -> float:
        """Mean rate over the trace, at this speed."""
        span_s = self.at_s[-1] - self.at_s[0]
        return self.speed * (len(self.at_s) - 1) / span_s if span_s > 0 else self.speed * len(self.at_s)

    def times(self, rng: np.random.Generator) -> Iterator[Times]:
        """All due times in one block, from zero; ``rng`` is not used."""
        yield (np.asarray(self.at_s) - self.at_s[0]) / self.speed

    def at_rate(self, rate_per_s: float) -> "Replay":
        """The same trace, sped up or slowed down to another mean rate."""
        return replace(self, speed=self.speed * rate_per_s / self.rate_per_s)

    def __str__(self) -> str:
        return f"trace of {len(self.at_s)} requests, {self.rate_per_s:.4g} req/s"


def _forever() -> Iterator[int]:
    block = 0
    while True:
        yield block
        block += 1
