"""Promises that every shipped space keeps."""

import json

import pytest

from autotune.space.config import LaunchConfig
from autotune.space.cut import cut_space
from autotune.space.facts import GIB, DeviceFacts, VllmFacts
from autotune.space.files import space_files
from autotune.space.load import load_shipped
from autotune.space.model import ModelFacts

NAMES = sorted(space_files())
ASKED_FOR = {
    "default",
    "cpu",
    "h200",
    "h100",
    "b200",
    "a100-80g",
    "a100-40g",
    "l40s",
    "l4",
    "a10g",
    "rtx-4090",
    "rtx-3090",
    "t4",
}
CARD = {
    "gpu-memory-utilization",
    "block-size",
    "max-num-seqs",
    "max-num-batched-tokens",
    "kv-cache-dtype",
    "enforce-eager",
    "quantization",
    "max-cudagraph-capture-size",
    "compilation-config",
    "enable-prefix-caching",
    "async-scheduling",
    "api-server-count",
    "stream-interval",
    "performance-mode",
    "optimization-level",
    "attention-backend",
}
SOURCES = ("(source)", "(measured", "(report)", "(arithmetic)", "(assumed)")
QWEN = ModelFacts(dtype="bfloat16", attention="gqa", head_size=128, max_position_embeddings=40960)


def device(file):
    match = file.match
    if match is None or match.kind == "cpu":
        kind = "cuda" if match is None else "cpu"
        return DeviceFacts(kind, "any", 24 * GIB, (8, 9) if match is None else None, 8)
    return DeviceFacts("cuda", match.names[0], int(sum(match.memory_gib) / 2 * GIB), match.capability, 32)


@pytest.fixture(params=NAMES)
def file(request):
    return load_shipped(request.param)


def test_all_spaces_are_there():
    assert set(NAMES) == ASKED_FOR


def test_every_parameter_of_the_card_is_searched_or_left_out_with_a_reason(file):
    assert set(file.parameters) | set(file.omit) >= CARD
    assert not set(file.parameters) & set(file.omit)


def test_every_reason_is_one_line_and_names_its_source(file):
    for name, entry in file.parameters.items():
        assert entry.why and "\n" not in entry.why.strip(), name
        assert any(source in entry.why for source in SOURCES), name
    assert all(file.omit.values())
    assert all(seed.why for seed in file.seeds)


@pytest.mark.parametrize("version", ["0.24.0", "0.26.0", "0.32.0", "0.33.0"])
def test_every_space_can_be_cut_for_its_own_device(file, version):
    space = cut_space(file, device(file), VllmFacts(version, known=False), QWEN, workload_max_len=768)
    assert {"max-num-seqs", "max-num-batched-tokens"} <= {p.name for p in space.parameters}
    assert space.seeds
    assert "max-num-batched-tokens >= max-num-seqs" in [str(rule) for rule in space.rules]
    assert not [d for d in space.dropped if d.parameter.startswith("seed")]


def test_the_baseline_breaks_no_rule_and_neither_does_a_seed(file):
    space = cut_space(file, device(file), VllmFacts("0.32.0", known=False), QWEN)
    for config in (LaunchConfig(), *space.seeds):
        assert space.broken_rule(dict(config.flags)) is None


def test_batch_limits_are_live_and_precision_is_marked(file):
    marks = {name: (entry.scope, entry.precision) for name, entry in file.parameters.items()}
    for name, (scope, precision) in marks.items():
        assert (scope == "live") == (name in ("max-num-seqs", "max-num-batched-tokens")), name
        assert precision == (name in ("quantization", "kv-cache-dtype", "dtype")), name


def test_memory_is_never_asked_for_to_the_brim(file):
    values = [e.value for e in file.parameters["gpu-memory-utilization"].entries()] if file.name != "cpu" else []
    assert all(value is None or value <= 0.95 for value in values)


def test_chunked_prefill_and_length_are_not_searched(file):
    assert not {"enable-chunked-prefill", "max-model-len"} & set(file.parameters)


def test_every_setting_of_the_compilation_is_json():
    for entry in load_shipped("default").parameters["compilation-config"].entries():
        assert entry.value is None or json.loads(entry.value)


def test_kv_dtypes_that_ruin_answers_are_not_listed(file):
    entry = file.parameters.get("kv-cache-dtype")
    assert entry is None or {e.value for e in entry.entries()} <= {None, "fp8"}


def test_an_engine_on_the_cpu_can_be_measured():
    file = load_shipped("cpu")
    assert file.fixed.flags["distributed-executor-backend"] == "uni"
    assert file.fixed.flags["kv-cache-memory-bytes"] == 2**30
    assert file.fixed.env["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
    assert file.fixed.env["VLLM_HOST_IP"] == "127.0.0.1"
