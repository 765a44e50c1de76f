"""The table of vLLM's batch defaults, row by row, and what counts as the same configuration."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.space.config import LaunchConfig
from autotune.space.defaults import Defaults, find_defaults
from autotune.space.facts import GIB, DeviceFacts, VllmFacts


def device(name, gib, capability=None):
    kind = "cuda" if capability else "cpu"
    return DeviceFacts(kind, name, int(gib * GIB), capability)


def batch(dev, version="0.32.0", **flags):
    config = LaunchConfig.of({name.replace("_", "-"): value for name, value in flags.items()})
    return find_defaults(dev, VllmFacts(version), 4096).batch(config)


H200 = device("NVIDIA H200", 140, (9, 0))
A10G = device("NVIDIA A10G", 22, (8, 6))
CPU = device("AMD EPYC", 24)
GB10 = device("NVIDIA GB10", 120, (12, 1))
B200 = device("NVIDIA B200", 179, (10, 0))


@pytest.mark.parametrize(
    ("dev", "version", "expected"),
    [
        (B200, "0.32.0", (1024, 16384)),
        (B200, "0.24.0", (1024, 8192)),
        (B200, "0.28.0", (1024, None)),
        (H200, "0.24.0", (1024, 8192)),
        (H200, "0.33.0", (1024, 8192)),
        (device("NVIDIA H100 80GB HBM3", 79.6, (9, 0)), "0.32.0", (1024, 8192)),
        (device("NVIDIA A100-SXM4-80GB", 80, (8, 0)), "0.32.0", (256, 2048)),
        (A10G, "0.32.0", (256, 2048)),
        (GB10, "0.32.0", (1024, 8192)),
        (GB10, "0.33.0", (256, 2048)),
        (CPU, "0.32.0+cpu", (128, 2048)),
        (H200, "0.10.2", (None, None)),
        (H200, "not a version", (None, None)),
    ],
)
def test_the_row_of_each_device(dev, version, expected):
    assert batch(dev, version) == expected


def test_throughput_mode_doubles_only_what_is_unset():
    assert batch(H200, performance_mode="throughput") == (2048, 16384)
    assert batch(H200, performance_mode="throughput", max_num_seqs=64) == (64, 16384)


def test_unset_limits_follow_the_set_ones():
    assert batch(H200, max_num_batched_tokens=128) == (128, 128)
    assert batch(H200, max_num_seqs=1) == (1, 4096)
    assert batch(H200, max_num_seqs=1, max_model_len=100) == (1, 100)


def test_cpu_limits_count_per_worker():
    assert batch(CPU, tensor_parallel_size=2) == (256, 4096)
    assert batch(H200, tensor_parallel_size=2) == (1024, 8192)


def same(dev, left, right):
    defaults = find_defaults(dev, VllmFacts("0.32.0"), 4096)
    return defaults.effective(LaunchConfig.of(left)) == defaults.effective(LaunchConfig.of(right))


def test_a_default_and_its_explicit_equal_are_one_configuration():
    assert same(H200, {}, {"max-num-seqs": 1024, "max-num-batched-tokens": 8192})
    assert same(H200, {}, {"gpu-memory-utilization": 0.92, "enforce-eager": False, "kv-cache-dtype": "auto"})
    assert same(H200, {"max-num-batched-tokens": 128}, {"max-num-batched-tokens": 128, "max-num-seqs": 128})
    assert same(A10G, {"performance-mode": "throughput"}, {"performance-mode": "throughput", "max-num-seqs": 512})


def test_what_differs_stays_different():
    assert not same(H200, {}, {"max-num-seqs": 512})
    assert not same(A10G, {}, {"max-num-seqs": 1024})
    assert not same(H200, {"performance-mode": "throughput"}, {"performance-mode": "throughput", "max-num-seqs": 1024})
    assert not same(H200, {}, {"enforce-eager": True})
    assert not same(H200, {}, {"stream-interval": True})


@given(
    st.dictionaries(
        st.sampled_from(["max-num-seqs", "max-num-batched-tokens", "max-model-len"]), st.integers(1, 10**5)
    ),
    st.sampled_from([H200, A10G, CPU, B200]),
)
def test_effective_is_stable(flags, dev):
    defaults = find_defaults(dev, VllmFacts("0.33.0"), 4096)
    once = defaults.effective(LaunchConfig.of(flags))
    assert defaults.effective(once) == once


def test_an_unread_version_gives_only_what_vllm_states():
    found = find_defaults(H200, VllmFacts("0.50.0", defaults={"enforce-eager": False}), 4096)
    assert found == Defaults(max_model_len=4096, stated={"enforce-eager": False})


def test_what_the_installed_vllm_states_comes_before_the_table():
    found = find_defaults(H200, VllmFacts("0.33.0", defaults={"gpu-memory-utilization": 0.9}), 4096)
    assert found.by_flag()["gpu-memory-utilization"] == 0.9
    assert found.by_flag()["max-num-seqs"] == 1024
