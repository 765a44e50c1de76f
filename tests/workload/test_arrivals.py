"""Arrival processes have the rate and the spread they promise."""

from itertools import islice

import numpy as np
import pytest

from autotune.workload.arrivals import Arrival, Constant, Gamma, Poisson, Ramp, Replay


def gaps(arrival: Arrival, blocks: int = 80) -> np.ndarray:
    times = np.concatenate(list(islice(arrival.times(np.random.default_rng(0)), blocks)))
    assert (np.diff(times) >= 0).all()
    return np.diff(np.concatenate(([0.0], times)))


@pytest.mark.parametrize(
    "arrival, cv", [(Poisson(20.0), 1.0), (Gamma(20.0, 0.25), 2.0), (Gamma(20.0, 4.0), 0.5), (Constant(20.0), 0.0)]
)
def test_rate_and_coefficient_of_variation(arrival: Arrival, cv: float) -> None:
    spaces = gaps(arrival)
    assert 1 / spaces.mean() == pytest.approx(20, rel=0.05)
    assert spaces.std() / spaces.mean() == pytest.approx(cv, abs=0.1)
    assert gaps(arrival.at_rate(5.0)).mean() == pytest.approx(0.2, rel=0.05)


def test_a_ramp_ends_at_its_rate() -> None:
    times = np.cumsum(gaps(Ramp(2.0, 50.0, 40.0)))
    assert ((times > 0) & (times < 20)).sum() == pytest.approx(20 * 14, rel=0.15)
    assert ((times >= 40) & (times < 100)).sum() == pytest.approx(3000, rel=0.07)


def test_a_replay_plays_the_trace_at_its_speed() -> None:
    replay = Replay((10.0, 11.0, 14.0), speed=2.0)
    (times,) = replay.times(np.random.default_rng(0))
    assert times.tolist() == [0.0, 0.5, 2.0]
    assert replay.at_rate(0.5).rate_per_s == pytest.approx(0.5)
