import numpy as np
import pytest

from autotune.search.gp import Axes, fit

AXES = Axes((6, 2, 3, 4), (True, True, False, True))


def truth(codes):
    return 0.1 * codes[:, 0] - 0.4 * codes[:, 1] + np.array([0.0, 0.2, -0.1])[codes[:, 2]]


def data(count, noise=0.01, seed=0):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, AXES.sizes, (count, 4))
    return codes, truth(codes) + rng.normal(0, noise, count)


def train(codes, targets, live=None, noise=0.01):
    live = np.zeros(len(codes), dtype=bool) if live is None else live
    return fit(AXES, codes.astype(float), targets, np.full(len(codes), noise), live, scale=0.1)


def test_learns_additive_effects_from_few_points():
    model = train(*data(20))
    every = np.indices(AXES.sizes).reshape(4, -1).T
    mean, sd = model.predict(every.astype(float))
    errors = mean - truth(every)
    assert np.sqrt(np.mean(errors**2)) < 0.05
    assert np.mean(np.abs(errors) < 2.5 * sd) > 0.9


def test_an_axis_without_effect_shrinks():
    model = train(*data(40))
    effects = model.variances[1:5]
    assert effects[3] < 0.1 * effects[1]


def test_is_certain_at_data_and_unsure_far_from_it():
    codes, targets = data(8)
    codes[:, 1] = 0
    model = train(codes, targets)
    _, near = model.predict(codes[:1].astype(float))
    _, far = model.predict(np.array([[0.0, 1.0, 0.0, 0.0]]))
    assert near[0] < 0.03 < far[0]


def test_a_shared_offset_of_live_points_is_not_taken_for_an_effect():
    codes, targets = data(30, seed=3)
    live = np.arange(30) % 2 == 1
    model = train(codes, targets + 0.08 * live, live)
    mean, _ = model.predict(codes.astype(float))
    assert np.mean(mean - truth(codes)) == pytest.approx(0.0, abs=0.05)


def test_one_point_is_enough_to_predict():
    mean, sd = train(*data(1)).predict(np.array([[0.0, 0.0, 0.0, 0.0]]))
    assert np.isfinite(mean[0]) and sd[0] > 0
