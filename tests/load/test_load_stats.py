"""Percentiles, intervals and truncation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as reference

from autotune.load.stats import mean_interval, minimum_n, percentile, steady_from, wilson


def correlated(rng: np.random.Generator, n: int, r: float) -> np.ndarray:
    noise = rng.normal(size=n) * np.sqrt(1 - r * r)
    values = np.empty(n)
    values[0] = rng.normal()
    for i in range(1, n):
        values[i] = r * values[i - 1] + noise[i]
    return values


@pytest.mark.parametrize("q, n", [(50, 5), (90, 29), (95, 59), (99, 299)])
def test_percentiles_are_refused_below_their_minimum(q: int, n: int) -> None:
    assert minimum_n(q) == n
    assert percentile(np.arange(n - 1.0), q) is None
    assert percentile(np.arange(float(n)), q) is not None


@given(st.integers(400, 900), st.integers(0, 2**32 - 1))
def test_percentile_and_its_limits_are_ordered(n: int, seed: int) -> None:
    values = np.random.default_rng(seed).lognormal(size=n)
    for q in (50, 90, 95):
        estimate = percentile(values, q)
        assert estimate is not None and estimate.low is not None
        assert estimate.value == pytest.approx(np.percentile(values, q))
        assert estimate.low <= estimate.value
        assert estimate.high is None or estimate.value <= estimate.high


@pytest.mark.parametrize("r", [0.0, 0.6])
@pytest.mark.parametrize("q", [50, 95])
def test_percentile_intervals_contain_the_truth(q: int, r: float) -> None:
    rng = np.random.default_rng(1)
    truth = np.exp(0.5 * reference.norm.ppf(q / 100))
    inside = 0
    for _ in range(1000):
        estimate = percentile(np.exp(0.5 * correlated(rng, 400, r)), q)
        assert estimate is not None and estimate.low is not None
        inside += estimate.low <= truth <= (np.inf if estimate.high is None else estimate.high)
    assert inside >= 930


@pytest.mark.parametrize("r", [0.0, 0.6])
def test_mean_intervals_contain_the_truth(r: float) -> None:
    rng = np.random.default_rng(2)
    estimates = [mean_interval(5 + correlated(rng, 320, r)) for _ in range(1000)]
    assert sum(e.low <= 5 <= e.high for e in estimates) >= 930


def test_independent_intervals_would_be_too_narrow() -> None:
    """The reason for batch means: the textbook interval misses the truth far too often."""
    rng = np.random.default_rng(3)
    series = [correlated(rng, 320, 0.6) for _ in range(300)]
    textbook = sum(abs(s.mean()) <= 1.96 * s.std() / np.sqrt(len(s)) for s in series)
    assert textbook < 0.8 * 300


def test_a_short_series_has_no_interval() -> None:
    assert mean_interval(np.ones(3)).low is None
    assert mean_interval(np.empty(0)).value == 0


def test_wilson_matches_its_reference() -> None:
    expected = reference.binomtest(45, 50).proportion_ci(method="wilson")
    share = wilson(45, 50)
    assert (share.value, share.low, share.high) == pytest.approx((0.9, expected.low, expected.high))
    assert wilson(0, 0).high == 1.0


def test_truncation_drops_the_ramp_and_nothing_else() -> None:
    rng = np.random.default_rng(4)
    flat = 100 + rng.normal(size=200)
    assert steady_from(flat) <= 60
    ramp = np.concatenate([np.linspace(0, 100, 40), flat])
    assert 30 <= steady_from(ramp) <= 80
    assert steady_from(np.linspace(0, 100, 200)) == 200
