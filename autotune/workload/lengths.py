"""Distributions of token counts, given by their quantile functions.

Drawing goes through quantiles so that a block of requests can be *stratified*: one draw from each of n
equal slices of (0, 1), shuffled. Every block then carries nearly the same number of tokens, which removes
most of the workload's own noise from a comparison of two configurations.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import special

Distribution = Literal["fixed", "uniform", "lognormal", "empirical"]
Unit = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Lengths:
    """A distribution of token counts, cut to ``[low, high]``.

    ``median`` and ``sigma`` (of the logarithm) belong to ``lognormal``; ``values`` to ``empirical``.
    """

    distribution: Distribution
    low: int
    high: int
    median: float = 0.0
    sigma: float = 0.0
    values: tuple[int, ...] = ()

    @classmethod
    def fixed(cls, tokens: int) -> "Lengths":
        """Always the same length."""
        return cls("fixed", tokens, tokens)

    @classmethod
    def lognormal(cls, median: float, sigma: float, low: int, high: int) -> "Lengths":
        """Log-normal with this median, cut to ``[low, high]``."""
        return cls("lognormal", low, high, median=median, sigma=sigma)

    @classmethod
    def empirical(cls, values: tuple[int, ...]) -> "Lengths":
        """The given lengths, each as likely as the others."""
        return cls("empirical", min(values), max(values), values=tuple(sorted(values)))

    def at(self, unit: Unit) -> Counts:
        """Lengths at quantiles ``unit`` (values in (0, 1))."""
        raw = _QUANTILES[self.distribution](self, unit)
        return np.clip(np.rint(raw), self.low, self.high).astype(np.int64)

    @property
    def mean(self) -> float:
        """Mean length in tokens, from 2 000 quantiles."""
        return float(self.at((np.arange(2000) + 0.5) / 2000).mean())

    def scaled(self, factor: float) -> "Lengths":
        """All lengths times ``factor``, never below one token."""
        return replace(
            self,
            low=max(1, int(self.low * factor)),
            high=max(1, int(self.high * factor)),
            median=self.median * factor,
            values=tuple(max(1, int(v * factor)) for v in self.values),
        )

    def __str__(self) -> str:
        if self.low == self.high:
            return str(self.low)
        return f"{self.mean:.0f} ({self.low}-{self.high})"


def _fixed(lengths: Lengths, unit: Unit) -> Unit:
    return np.full(unit.shape, float(lengths.low))


def _uniform(lengths: Lengths, unit: Unit) -> Unit:
    return lengths.low + unit * (lengths.high - lengths.low)


def _lognormal(lengths: Lengths, unit: Unit) -> Unit:
    result: Unit = lengths.median * np.exp(lengths.sigma * special.ndtri(unit))
    return result


def _empirical(lengths: Lengths, unit: Unit) -> Unit:
    values = np.asarray(lengths.values, dtype=np.float64)
    drawn: Unit = values[np.minimum((unit * len(values)).astype(np.int64), len(values) - 1)]
    return drawn


_QUANTILES: dict[Distribution, Callable[[Lengths, Unit], Unit]] = {
    "fixed": _fixed,
    "uniform": _uniform,
    "lognormal": _lognormal,
    "empirical": _empirical,
}


def stratified(rng: np.random.Generator, n: int) -> Unit:
    """``n`` numbers in (0, 1), one from each of ``n`` equal slices, in random order."""
    drawn: Unit = (rng.permutation(n) + rng.random(n).clip(1e-9, 1 - 1e-9)) / n
    return drawn
