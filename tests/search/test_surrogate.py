import math
from itertools import pairwise

import numpy as np
import pytest

from autotune.search.domain import Domain
from autotune.search.roofline import Operating, Roofline, RooflinePrior
from autotune.search.samplers import RandomSampler
from autotune.search.study import StudySearcher, open_study
from autotune.search.surrogate import SurrogateSampler
from autotune.search.types import Outcome
from autotune.space.config import LaunchConfig
from autotune.space.parameters import Parameter, SearchSpace

SPACE = SearchSpace(
    "toy",
    (
        Parameter("max-num-seqs", (8, 16, 32, 64, 128, 256), "live", ordered=True),
        Parameter("max-num-batched-tokens", (512, 1024, 2048, 4096, 8192), "live", ordered=True),
        Parameter("enforce-eager", (None, True)),
        Parameter("kv-cache-dtype", (None, "fp8", "fp8_e5m2"), precision=True),
        Parameter("block-size", (None, 32, 64), ordered=True),
    ),
)
DEFAULTS = {"max-num-seqs": 256, "max-num-batched-tokens": 2048}


def speed(config):
    seqs = config.get("max-num-seqs") or 256
    tokens = config.get("max-num-batched-tokens") or 2048
    log = -0.15 * abs(math.log2(seqs / 64)) - 0.03 * abs(math.log2(tokens / 4096))
    log += {None: 0.0, "fp8": 0.12, "fp8_e5m2": -0.1}[config.get("kv-cache-dtype")]
    return 1000 * math.exp(log - 0.3 * (config.get("enforce-eager") is True))


BEST = 1000 * math.exp(0.12)


def measured(suggestion, rng, **extra):
    value = speed(suggestion.target) * math.exp(rng.normal(0, 0.015))
    return Outcome("measured", value, boot_s=0.0 if suggestion.live else 80.0, cost_s=20.0, **extra)


def run(sampler, trials, outcome=measured, seed=0, live=False, slo=(), seeds=()):
    domain = Domain(SPACE, DEFAULTS)
    made = RandomSampler(domain) if sampler == "random" else SurrogateSampler(domain, "maximize", sampler)
    search = StudySearcher(open_study("s", None, "maximize"), domain, made, seed=seed, slo_names=slo, seeds=seeds)
    rng, asked, running = np.random.default_rng(seed), [], None
    while len(asked) < trials and (suggestion := search.ask(running)) is not None:
        told = outcome(suggestion, rng)
        search.tell(suggestion, told)
        asked.append(suggestion)
        running = suggestion.config if live and told.status == "measured" else None
    return search, asked


def regret(asked):
    return 1 - max(speed(s.target) for s in asked if not s.live) / BEST


def test_beats_random_at_equal_trials_without_any_prior():
    ours = [regret(run(None, 16, seed=s)[1]) for s in range(5)]
    random = [regret(run("random", 16, seed=s)[1]) for s in range(5)]
    assert np.median(ours) < 0.03 < np.median(random)


def test_live_points_stay_in_the_running_engine_and_below_its_limits():
    _, asked = run(None, 25, live=True)
    points = [(previous, s) for previous, s in pairwise(asked) if s.live]
    assert points
    for previous, point in points:
        assert point.config == previous.config
        assert point.live["max-num-seqs"] <= (point.config.get("max-num-seqs") or 256)
        assert point.live["max-num-batched-tokens"] <= (point.config.get("max-num-batched-tokens") or 2048)
        assert point.target.get("kv-cache-dtype") == point.config.get("kv-cache-dtype")


def test_live_points_never_become_finalists():
    search, asked = run(None, 25, live=True)
    assert any(s.live for s in asked)
    assert all(not o.suggestion.live for o in search.finalists(5))


def test_no_live_points_without_a_running_engine():
    _, asked = run(None, 15)
    assert not any(s.live for s in asked)


def test_stops_when_nothing_promising_is_left():
    _, asked = run(None, 300)
    assert regret(asked) < 0.02
    assert len(asked) < 60


def test_keeps_away_from_crashes():
    def crashing(suggestion, rng):
        if suggestion.target.get("kv-cache-dtype") == "fp8":
            return Outcome("infeasible", margin=0.05, boot_s=60.0, cost_s=60.0)
        return measured(suggestion, rng)

    _, asked = run(None, 20, crashing)
    assert sum(s.target.get("kv-cache-dtype") == "fp8" for s in asked) <= 4


def test_finalists_meet_a_tail_limit_that_the_fastest_miss():
    def tail(suggestion, rng):
        tokens = suggestion.target.get("max-num-batched-tokens") or 2048
        return measured(suggestion, rng, violations={"itl": tokens / 1500 - 1})

    search, asked = run(None, 20, tail, slo=("itl",))
    finalists = search.finalists(3, slo_margin=0.08)
    assert finalists
    assert all((o.suggestion.target.get("max-num-batched-tokens") or 2048) <= 1024 for o in finalists)
    after = [s for s in asked[8:] if (s.target.get("max-num-batched-tokens") or 2048) <= 1024]
    assert len(after) > 0.6 * len(asked[8:])


def test_a_prior_points_to_large_batches_from_the_first_boot():
    def physics(config):
        seqs = float(config.get("max-num-seqs") or 256)
        return Operating(seqs, 3e10, 1.6e5, 3e10, 512, 256, 4.8e12, 989e12)

    def outcome(suggestion, rng):
        value = Roofline(0.8, 0.4, 0.005).throughput(physics(suggestion.target))
        return Outcome("measured", value, boot_s=80.0, cost_s=100.0)

    start = [("seed", LaunchConfig.of({"max-num-seqs": 8}))]
    _, asked = run(RooflinePrior(physics), 6, outcome, seeds=start)
    assert all((s.target.get("max-num-seqs") or 256) >= 64 for s in asked[2:])


@pytest.mark.parametrize("live", [False, True])
def test_same_seed_same_trials(live):
    first, second = (run(None, 12, live=live, seed=4)[1] for _ in range(2))
    assert first == second
