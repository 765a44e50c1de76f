"""The benchmark that decides between samplers must itself be right: truth, clock, tables."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "search"))

from arms import ExactPhysics
from replay import load_truth, paired, replay, table
from simulate import Clock, SyntheticMachine
from table import read

from autotune.search.types import Suggestion
from autotune.space.config import LaunchConfig

FEW = "h200-few-flags"


def suggestion(config, live=None):
    target = config.merged(LaunchConfig.of(live or {}))
    return Suggestion(0, config, target, {}, "sampler", live or {})


def test_truth_is_dense_and_the_best_is_feasible():
    truth = load_truth("h200-14b-itl")
    values = [truth.share(truth.config(i)) for i in np.random.default_rng(0).integers(0, truth.value.size, 300)]
    assert max(values) <= 1.0 and min(values) == 0.0
    assert truth.share(None) == 0.0


def test_index_and_config_are_inverse_and_defaults_have_one_spelling():
    truth = load_truth(FEW)
    assert all(truth.index(truth.config(i)) == i for i in range(truth.value.size))
    explicit = LaunchConfig.of({"max-num-seqs": truth.defaults["max-num-seqs"]})
    assert truth.index(explicit) == truth.index(LaunchConfig())


def test_clock_charges_cold_and_hot_boots_and_cheap_live_points():
    clock = Clock(SyntheticMachine(load_truth(FEW)), np.random.default_rng(0))
    costs = [clock.run(suggestion(LaunchConfig())).cost_s for _ in range(2)]
    assert 100 < costs[0] < 180 and 30 < costs[1] < 60, "imports are paid once, the compile cache is hot"
    live = clock.run(suggestion(LaunchConfig(), {"max-num-seqs": 256}))
    assert live.boot_s == 0 and live.fidelity == "live" and live.cost_s < 20
    assert clock.boots == 2 and clock.trials == 3
    assert clock.seconds == pytest.approx(sum(costs) + live.cost_s)


def test_exact_physics_lacks_only_the_bumps():
    truth = load_truth("h200-14b")
    prior = ExactPhysics(truth)
    for index in (0, 5000, 90000):
        config = truth.config(index)
        known = prior.log_value(prior.fitted([]), prior.physics(config))
        assert known == pytest.approx(np.log(truth.smooth[index]))
        assert 0 < abs(known - np.log(truth.value[index])) < 0.2


def test_out_of_memory_costs_time_and_has_a_margin():
    truth = load_truth("rtx-8b")
    index = int(np.argmin(truth.margin))
    clock = Clock(SyntheticMachine(truth), np.random.default_rng(0))
    outcome = clock.run(suggestion(truth.config(index)))
    assert outcome.status == "infeasible" and outcome.margin > 0 and outcome.cost_s > 30
    assert clock.crashes == 1 and clock.running is None


def test_same_seed_same_run_and_ours_beats_random_on_few_flags():
    ours = [replay(FEW, "ours", seed, 60) for seed in range(3)]
    again = replay(FEW, "ours", 1, 60)
    random = [replay(FEW, "planner + random", seed, 600) for seed in range(3)]
    assert again == ours[1]
    assert np.median([r.minutes_5 for r in ours]) < np.median([r.minutes_5 for r in random])
    text = table(ours + random)
    assert "| ours | 3 |" in text and "held-out" in text
    assert "median ratio" in paired(ours + random)


def lines(*extra):
    head = {
        "kind": "scenario",
        "name": "t",
        "defaults": {"max-num-seqs": 1024},
        "slo": {"itl_p99_ms": 100.0},
        "parameters": [{"name": "max-num-seqs", "values": [256, 1024], "scope": "live", "ordered": True}],
    }
    load = {"kind": "load", "flags": {}, "boot": 0, "metrics": {"itl_p99_ms": 80.0}, "seconds": 16.0}
    return [
        head,
        {"kind": "boot", "flags": {}, "started": True, "cold_s": 118.0, "hot_s": 66.0},
        {"kind": "boot", "flags": {"max-num-seqs": 4096}, "started": False, "cold_s": 55.0, "margin": 0.02},
        {**load, "value": 5749.0},
        {**load, "value": 5584.0, "boot": 1},
        {**load, "value": 5792.0, "boot": 1},
        {**load, "value": 6000.0, "live": {"max-num-seqs": 256}},
        *extra,
    ]


def write(path, rows):
    path.write_text("\n".join(json.dumps(r) for r in rows))
    return path


def test_a_measured_table_replays_boots_and_hides_its_last_replicate(tmp_path):
    measured = read(write(tmp_path / "t.jsonl", lines()))
    rng, warm, default = np.random.default_rng(0), set(), LaunchConfig()
    assert [measured.boot(default, warm, rng)[1] for _ in range(2)] == [118.0, 66.0]
    seen = {measured.load(default, default, measured.boot_noise(default, rng), rng).value for _ in range(50)}
    assert seen == {5749.0, 5584.0}
    assert measured.truth(default) == (5792.0, True) and measured.best() == 5792.0
    live = default.merged(LaunchConfig.of({"max-num-seqs": 256}))
    assert measured.load(default, live, 0.0, rng).violations["itl_p99_ms"] == pytest.approx(-0.2)
    failed = LaunchConfig.of({"max-num-seqs": 4096})
    assert measured.boot(failed, warm, rng) == (False, 55.0, -0.02)
    assert measured.covers(failed) and not measured.covers(LaunchConfig.of({"max-num-seqs": 7}))


def test_arms_run_on_a_measured_table_and_stay_inside_it(tmp_path):
    path = tmp_path / "t.jsonl"
    rows = lines({"kind": "boot", "flags": {"max-num-seqs": 256}, "started": True, "cold_s": 100.0, "hot_s": 60.0})
    faster = {"kind": "load", "flags": {"max-num-seqs": 256}, "boot": 0, "metrics": {"itl_p99_ms": 70.0}}
    write(path, [*rows, *({**faster, "value": 7000.0 + i} for i in range(2))])
    for arm in ("ours", "planner + random", "TPE + constraints"):
        run = replay(str(path), arm, 0, 60)
        assert run.share == 1.0 and run.minutes_2 is not None


def test_a_table_without_a_head_or_with_loads_that_never_booted_is_refused(tmp_path):
    with pytest.raises(ValueError, match="scenario"):
        read(write(tmp_path / "a.jsonl", lines()[1:]))
    stray = {"kind": "load", "flags": {"block-size": 32}, "value": 1.0, "metrics": {"itl_p99_ms": 1.0}}
    with pytest.raises(ValueError, match="without a boot"):
        read(write(tmp_path / "b.jsonl", lines(stray)))
