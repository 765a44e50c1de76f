import math

import pytest

from autotune.search.ablation import contributions, pruned, without_each
from autotune.search.race import Race, Runner
from autotune.space.config import LaunchConfig

FIXED = LaunchConfig.of({"max-model-len": 4096})
WINNER = FIXED.merged(LaunchConfig.of({"quantization": "fp8", "block-size": 32, "stream-interval": 4}))
PARTS = {"quantization": 0.30, "stream-interval": 0.05, "block-size": 0.0}


def ablate(values, drop=()):
    variants = without_each(WINNER, FIXED)
    race = Race(Runner("winner", 0), [Runner(n, 0) for n in variants], worth=0.0, min_rounds=2, max_rounds=2)
    while (visit := race.next()) is not None:
        if visit.runner in drop:
            race.drop(visit.runner, "out of memory")
        else:
            race.record(visit, values(visit))
    return variants, race.result()


def speed(visit):
    return 1000.0 / (1 + PARTS.get(visit.runner, 0.0)) * math.exp(0.001 * visit.round)


def test_removes_one_flag_at_a_time_and_never_a_fixed_one():
    variants, _ = ablate(speed)
    assert set(variants) == set(PARTS)
    assert variants["quantization"].get("quantization") is None
    assert all(v.get("max-model-len") == 4096 for v in variants.values())


def test_says_what_each_flag_adds_and_drops_what_adds_nothing():
    _, result = ablate(speed)
    parts = contributions(result, "winner")
    assert [p.flag for p in parts] == ["quantization", "stream-interval", "block-size"]
    assert parts[0].gain == pytest.approx(0.30, abs=1e-6) and parts[0].low < 0.30 < parts[0].high
    assert [p.needed for p in parts] == [True, True, False]
    assert pruned(WINNER, parts) == WINNER.without("block-size")


def test_a_flag_without_which_nothing_starts_is_needed():
    _, result = ablate(speed, drop=("quantization",))
    needed = {p.flag: p.needed for p in contributions(result, "winner")}
    assert needed["quantization"] and not needed["block-size"]
