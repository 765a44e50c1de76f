"""Statistics of autocorrelated samples: intervals for means and percentiles, proportions, steady state.

Latencies and rates of one run are autocorrelated, so formulas for independent samples give intervals that
are far too narrow. Two standard cures are used:

- *Batch means* for a rate: the window is cut into batches; their mean has variance s²/k, widened by
  (1+r)/(1-r) where neighbouring batches still correlate (r > 0), Student's t with k - 1 degrees; the wider
  of the intervals for 16 and for 8 batches.
- *Inflated order statistics* for a percentile: whether a sample lies below the percentile is a 0/1 series;
  batch means of it tell by how much autocorrelation inflates its variance over p(1-p)/n. The effective
  sample size n/inflation gives the ranks of the limits, exactly as in the distribution-free (binomial)
  interval. A limit whose rank lies outside the sample does not exist, and is None.

A percentile is refused below the sample size with which a single run could show, at 95 % confidence, that
the share above it is small enough: n = ln 0.05 / ln p (59 for p95, 299 for p99).
"""

import math

import numpy as np
import numpy.typing as npt
from scipy import special

from autotune.load.types import PERCENTILES, Estimate, Latency

Floats = npt.NDArray[np.float64]
BATCHES = 16
FEWEST_BATCHES = 4
CONFIDENCE = 0.95
Z95 = 1.959963984540054


def student_t(degrees: int) -> float:
    """The two-sided 95 % quantile of Student's t."""
    return float(special.stdtrit(degrees, 1 - (1 - CONFIDENCE) / 2))


def mean_interval(series: Floats, batches: int = BATCHES) -> Estimate:
    """Mean of a stationary series of equally long slices, with its batch-means interval.

    Where no slice is negative, neither is the lower limit.

    Open where there are fewer than four slices.
    """
    if len(series) == 0:
        return Estimate(0.0)
    mean, variance = float(series.mean()), _variance_of_mean(series, batches)
    if variance is None:
        return Estimate(mean)
    half = Z95 * math.sqrt(variance)
    floor = 0.0 if series.min() >= 0 else -math.inf
    return Estimate(mean, max(floor, mean - half), mean + half)


def _variance_of_mean(series: Floats, batches: int = BATCHES) -> float | None:
    """Variance of the mean of an autocorrelated series, made larger so that 1.96 standard errors are enough.

    The larger of two answers, for ``batches`` batches and for half as many: with long memory the small
    batches see too little of it, with short memory both agree. None below four slices.
    """
    k = min(batches, len(series))
    if k < FEWEST_BATCHES:
        return None
    return max(_batch_variance(series, count) for count in {k, max(FEWEST_BATCHES, k // 2)})


def _batch_variance(series: Floats, k: int) -> float:
    means = batch_means(series, k)
    t_over_z = student_t(k - 1) / Z95
    return float(means.var(ddof=1)) / k * _widening(means) * t_over_z**2


def batch_means(series: Floats, batches: int) -> Floats:
    """Means of ``batches`` consecutive parts of nearly equal size."""
    edges = np.linspace(0, len(series), batches + 1).astype(np.int64)
    sums = np.add.reduceat(series, edges[:-1])
    result: Floats = sums / np.diff(edges)
    return result


def _widening(means: Floats) -> float:
    r = _lag_one(means)
    return (1 + r) / (1 - r) if r > 0 else 1.0


def _lag_one(values: Floats) -> float:
    centred = values - values.mean()
    total = float(centred @ centred)
    return min(0.8, float(centred[1:] @ centred[:-1]) / total) if total > 0 else 0.0


def minimum_n(q: float) -> int:
    """Smallest sample for percentile ``q`` (in per cent)."""
    return math.ceil(math.log(1 - CONFIDENCE) / math.log(max(q, 100 - q) / 100))


def percentile(values: Floats, q: float) -> Estimate | None:
    """Percentile ``q`` of a time-ordered sample with its interval; None where the sample is too small."""
    n = len(values)
    if n < minimum_n(q):
        return None
    value = float(np.percentile(values, q))
    ordered = np.sort(values)
    low, high = _ranks(n, q / 100, inflation((values <= value).astype(np.float64), q / 100))
    return Estimate(
        value,
        float(ordered[low - 1]) if low >= 1 else None,
        float(ordered[high - 1]) if high <= n else None,
    )


def inflation(hits: Floats, p: float) -> float:
    """By how much autocorrelation inflates the variance of the share of a time-ordered 0/1 series; 1 or more.

    ``p`` is the share; an independent series has the variance p(1-p)/n.
    """
    observed = _variance_of_mean(hits, min(BATCHES, len(hits) // 4))
    if observed is None or not 0 < p < 1:
        return 1.0
    return max(1.0, observed / (p * (1 - p) / len(hits)))


def _ranks(n: int, p: float, inflation: float) -> tuple[int, int]:
    """Ranks (from 1) of the two limits in the ordered sample; 0 or n + 1 where a limit doesn't exist."""
    effective = max(1, round(n / inflation))
    tail = (1 - CONFIDENCE) / 2
    low = _binomial_quantile(tail, effective, p)
    high = _binomial_quantile(1 - tail, effective, p) + 1
    if high > effective:
        return math.floor(low * n / effective), n + 1
    return math.floor(low * n / effective), min(n, math.ceil(high * n / effective))


def _binomial_quantile(share: float, n: int, p: float) -> int:
    """Smallest k with P(X <= k) >= share for X binomial (n, p)."""
    k = max(0, math.ceil(float(special.bdtrik(share, n, p)) - 1e-9))
    return k - 1 if k and special.bdtr(k - 1, n, p) >= share else k


def latency(values_ms: Floats) -> Latency:
    """Summary of time-ordered latencies in milliseconds."""
    if len(values_ms) == 0:
        return Latency(0, 0.0)
    percentiles = {f"p{q}": percentile(values_ms, q) for q in PERCENTILES}
    variance = _variance_of_mean(values_ms)
    mean_se = None if variance is None else math.sqrt(variance)
    return Latency(len(values_ms), float(values_ms.mean()), mean_se=mean_se, **percentiles)


def wilson(successes: float, n: float, *, z: float = Z95) -> Estimate:
    """A share with its Wilson score interval. ``n`` may be an effective, fractional sample size."""
    if n == 0:
        return Estimate(0.0, 0.0, 1.0)
    p = successes / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return Estimate(p, max(0.0, centre - half), min(1.0, centre + half))


def steady_from(series: Floats, group: int = 5) -> int:
    """MSER truncation: the index from which the series' mean is estimated best.

    The series is averaged in groups of ``group``; the cut minimises the squared standard error of the rest.
    A cut in the second half means that the series did not settle; then its length is returned.
    """
    groups = len(series) // group
    if groups < 4:
        return 0
    means = series[: groups * group].reshape(groups, group).mean(axis=1)
    left = groups - np.arange(groups - 2)
    sums = np.cumsum(means[::-1])[::-1][: groups - 2]
    squares = np.cumsum((means**2)[::-1])[::-1][: groups - 2]
    errors = (squares - sums**2 / left) / left**2
    cut = int(np.argmin(errors))
    return cut * group if cut <= groups // 2 else len(series)
