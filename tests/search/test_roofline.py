import math
from dataclasses import replace

import pytest

from autotune.search.roofline import Operating, Roofline, RooflinePrior, fit
from autotune.search.types import Observation, Outcome, Suggestion
from autotune.space.config import LaunchConfig

POINT = Operating(
    batch=256,
    weight_bytes=29.6e9,
    kv_bytes_per_token=163_840,
    flops_per_token=29.6e9,
    input_tokens=512,
    output_tokens=256,
    bandwidth_bytes_s=4.8e12,
    peak_flops=989e12,
)
BATCHES = (8, 32, 128, 256)


def test_agrees_with_a_measured_gpu_within_a_third():
    # One H200, Qwen3-14B shape, 512 in, 256 out, 256 at once: 5 737 to 5 792 output tokens per second.
    assert Roofline().throughput(POINT) == pytest.approx(5_760, rel=0.33)
    assert Roofline(beta=0.55).throughput(POINT) == pytest.approx(5_760, rel=0.1)


def test_four_points_recover_the_machine():
    machine = Roofline(0.8, 0.35, 0.006)
    points = [replace(POINT, batch=b) for b in BATCHES]
    model = fit(points, [math.log(machine.tpot_s(p)) for p in points])
    other = replace(POINT, batch=64)
    assert model.tpot_s(other) == pytest.approx(machine.tpot_s(other), rel=0.04)


def test_without_points_the_prior_stands_and_one_point_moves_it():
    assert fit([], []) == Roofline()
    slow = fit([POINT], [math.log(2 * Roofline().tpot_s(POINT))])
    assert Roofline().tpot_s(POINT) < slow.tpot_s(POINT) <= 2.05 * Roofline().tpot_s(POINT)


def test_one_strange_point_does_not_bend_the_fit():
    machine = Roofline(0.7, 0.45, 0.004)
    points = [replace(POINT, batch=b) for b in (8, 32, 64, 128, 256)]
    logs = [math.log(machine.tpot_s(p)) for p in points]
    logs[2] += math.log(3)
    model = fit(points, logs)
    assert model.tpot_s(POINT) == pytest.approx(machine.tpot_s(POINT), rel=0.12)


@pytest.mark.parametrize("quantity", ["throughput", "tpot"])
def test_prior_predicts_the_objective_it_was_fitted_to(quantity):
    def physics(config):
        return replace(POINT, batch=float(config.get("max-num-seqs")))

    machine = Roofline(0.8, 0.4, 0.005)

    def value(batch):
        at = replace(POINT, batch=batch)
        return machine.throughput(at) if quantity == "throughput" else machine.tpot_s(at)

    history = []
    for i, batch in enumerate(BATCHES):
        config = LaunchConfig.of({"max-num-seqs": batch})
        history.append(Observation(Suggestion(i, config, config, {}, "sampler"), Outcome("measured", value(batch))))
    prior = RooflinePrior(physics, quantity)
    predicted = math.exp(prior.log_value(prior.fitted(history), replace(POINT, batch=64)))
    assert predicted == pytest.approx(value(64), rel=0.05)
