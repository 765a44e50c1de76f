import numpy as np

from autotune.search.domain import Domain
from autotune.search.planner import MemoryGuard, outlook, seeds
from autotune.search.samplers import RandomSampler
from autotune.search.types import Feasibility, Observation, Outcome, Suggestion
from autotune.space.config import LaunchConfig
from autotune.space.parameters import Parameter, SearchSpace

SPACE = SearchSpace(
    "test",
    (
        Parameter("max-num-seqs", (8, 64, 512), "live", ordered=True),
        Parameter("gpu-memory-utilization", (0.8, None, 0.97), ordered=True),
        Parameter("performance-mode", (None, "throughput")),
    ),
    seeds=(LaunchConfig.of({"max-num-seqs": 512}),),
)


def spare(config):
    margin = {0.8: -0.1, None: 0.05, 0.97: 0.02}[config.get("gpu-memory-utilization")]
    return Feasibility(margin > 0, "" if margin > 0 else "no room for the KV cache", margin)


def crashed(config, margin=0.01):
    return Observation(Suggestion(0, config, config, {}, "sampler"), Outcome("infeasible", margin=margin))


def test_guard_asks_for_more_room_after_a_crash_it_had_not_foreseen():
    guard = MemoryGuard(spare)
    tight, roomy = LaunchConfig.of({"gpu-memory-utilization": 0.97}), LaunchConfig()
    assert guard(tight).fits and guard(roomy).fits
    guard.learn([crashed(tight)])
    assert not guard(tight).fits and "spare" in guard(tight).reason
    assert guard(roomy).fits


def test_guard_does_not_learn_from_failures_without_a_margin():
    guard = MemoryGuard(spare)
    tight = LaunchConfig.of({"gpu-memory-utilization": 0.97})
    guard.learn([crashed(tight, margin=None)])
    assert guard(tight).fits


def test_seeds_are_incumbents_champions_rules_and_modes():
    incumbent, champion = LaunchConfig.of({"a": 1}), LaunchConfig.of({"b": 1})
    found = seeds(SPACE, [incumbent], [champion])
    assert [origin for origin, _ in found] == ["incumbent", "seed", "seed", "seed"]
    assert found[-1][1] == LaunchConfig.of({"performance-mode": "throughput"})


def test_the_outlook_lists_what_is_tried_and_what_cannot_start():
    domain = Domain(SPACE)
    first = seeds(SPACE, [LaunchConfig.of({"gpu-memory-utilization": 0.8})], [LaunchConfig.of({"max-num-seqs": 8})])
    bad = LaunchConfig.of({"gpu-memory-utilization": 0.8, "max-num-seqs": 8})
    first.append(("seed", bad))
    seen = outlook(domain, first, RandomSampler(domain), feasible=spare, rng=np.random.default_rng(0))
    assert seen.first[0].origin == "baseline" and seen.first[0].config == LaunchConfig()
    # Arithmetic does not stop what runs in production.
    assert [bool(c.skipped) for c in seen.first] == [False, False, False, False, False, True]
    tried = {c.config for c in seen.first}
    assert len(seen.next_up) == 5 and not tried & {c.config for c in seen.next_up}
    assert all(c.config.get("gpu-memory-utilization") != 0.8 for c in seen.next_up)
    (refused,) = seen.impossible
    assert refused.reason == "no room for the KV cache" and refused.example.get("gpu-memory-utilization") == 0.8
    assert refused.count * 3 == seen.looked_at == seen.assignments


def test_reasons_that_differ_in_numbers_only_are_told_once():
    def predict(config):
        seqs = config.get("max-num-seqs")
        return Feasibility(seqs is None, f"{seqs or 1}.5 GiB are missing")

    seen = outlook(Domain(SPACE), [], RandomSampler(Domain(SPACE)), feasible=predict, rng=np.random.default_rng(0))
    (refused,) = seen.impossible
    assert refused.reason.startswith(str(refused.example.get("max-num-seqs")))
