"""The memory model against measured boots, and against an engine that keeps its own books."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.engine.failures import Failure, MarginBytes
from autotune.engine.logs import GIB, BootFacts
from autotune.engine.memory import MemoryModel, request_bytes
from autotune.engine.memory_flags import MemoryFlags
from autotune.engine.model_shape import ModelShape, read_model_shape, shape_of
from autotune.space.config import FlagValue, LaunchConfig

H200 = 143_771 << 20
QWEN3_14B: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 5120, "intermediate_size": 17408,
    "num_hidden_layers": 40, "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
    "max_position_embeddings": 40960, "torch_dtype": "bfloat16", "tie_word_embeddings": False,
}  # fmt: skip
QWEN3_8B = QWEN3_14B | {
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
}
TINY: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"], "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 4096,
    "max_position_embeddings": 4096,
    "dtype": "bfloat16", "tie_word_embeddings": True,
}  # fmt: skip


def shape(config: dict[str, Any], *, exact: bool = False) -> ModelShape:
    guessed = shape_of(config)
    assert guessed is not None
    found = shape_of(
        config,
        {"model.layers.0.mlp.w": guessed.linear_bytes, "lm_head.w": guessed.weights_bytes - guessed.linear_bytes},
    )
    assert found is not None
    return found if exact else guessed


def config(**flags: FlagValue) -> LaunchConfig:
    return LaunchConfig.of({name.replace("_", "-"): value for name, value in flags.items()})


def model(source: dict[str, Any], version: str = "0.26.0", *, exact: bool = False) -> MemoryModel:
    return MemoryModel("m", version, shape(source, exact=exact))


@pytest.mark.parametrize(("kv_dtype", "measured"), [("auto", 650_560), ("fp8", 1_301_120)])
def test_the_first_guess_is_close_to_what_an_h200_gave(kv_dtype: str, measured: int) -> None:
    prediction = model(QWEN3_14B).predict(config(kv_cache_dtype=kv_dtype), total_bytes=H200)
    assert prediction.feasible
    assert prediction.kv_tokens == pytest.approx(measured, rel=0.01)


@pytest.mark.parametrize(("kv_bytes", "tokens"), [(1 << 30, 1_048_576), (1500 << 20, 1_536_000), (64 << 20, 65_536)])
def test_kv_tokens_on_the_cpu_are_exact(kv_bytes: int, tokens: int) -> None:
    prediction = model(TINY).predict(config(kv_cache_memory_bytes=kv_bytes), total_bytes=20 * GIB, device="cpu")
    assert prediction.kv_tokens == tokens
    assert prediction.feasible and not prediction.surely_impossible


def test_a_cpu_budget_that_imports_use_up_is_foreseen() -> None:
    """vLLM 0.32 on a host of 10.71 GiB: utilization 0.01 left -0.51 GiB."""
    prediction = model(TINY).predict(config(gpu_memory_utilization=0.01), total_bytes=round(10.71 * GIB), device="cpu")
    assert prediction.feasible is False and not prediction.surely_impossible
    assert prediction.kv_bytes == pytest.approx(-0.51 * GIB, rel=0.1)


def test_a_good_boot_replaces_the_guess() -> None:
    facts = BootFacts(kv_tokens=650_560, available_kv_bytes=650_560 * 163_840, max_model_len=40960)
    learned = model(QWEN3_14B).calibrated(facts, config(), total_bytes=H200)
    assert learned.predict(config(), total_bytes=H200).kv_tokens == 650_560
    assert learned.predict(config(kv_cache_dtype="fp8"), total_bytes=H200).kv_tokens == 1_301_120
    more = learned.predict(config(gpu_memory_utilization=0.95), total_bytes=H200)
    assert more.kv_bytes == pytest.approx(650_560 * 163_840 + 0.03 * H200, rel=1e-6)
    assert more.calibrated


def test_what_was_learned_is_dropped_on_upgrade() -> None:
    facts = BootFacts(kv_tokens=650_560, available_kv_bytes=99 * GIB, max_model_len=40960)
    learned = model(QWEN3_14B).calibrated(facts, config(), total_bytes=H200)
    assert learned.for_version("0.26.0") is learned
    assert learned.for_version("0.27.0").boots == ()


def test_without_a_shape_measurements_alone_predict() -> None:
    blind = MemoryModel("org/m", "0.26.0", None)
    assert blind.predict(config(), total_bytes=H200).feasible is None
    facts = BootFacts(kv_tokens=100_000, available_kv_bytes=10 * GIB, max_model_len=8192)
    learned = blind.calibrated(facts, config(), total_bytes=H200)
    assert learned.predict(config(), total_bytes=H200).kv_tokens == pytest.approx(100_000, rel=0.01)


def test_weights_larger_than_the_device_are_surely_impossible() -> None:
    prediction = model(QWEN3_14B, exact=True).predict(config(), total_bytes=round(23.5 * GIB))
    assert prediction.surely_impossible
    assert "weights" in prediction.why
    assert not model(QWEN3_14B).predict(config(), total_bytes=round(23.5 * GIB)).surely_impossible


def test_a_length_that_cannot_fit_is_surely_impossible() -> None:
    tiny = model(TINY)
    small = config(kv_cache_memory_bytes="1M", max_model_len=4096)
    assert tiny.predict(small, total_bytes=20 * GIB, device="cpu").surely_impossible
    assert not tiny.predict(
        config(kv_cache_memory_bytes="4M", max_model_len=4096), total_bytes=20 * GIB, device="cpu"
    ).surely_impossible


def test_kv_memory_beyond_the_host_is_surely_impossible() -> None:
    over = LaunchConfig.of({}, {"VLLM_CPU_KVCACHE_SPACE": "64"})
    assert model(TINY).predict(over, total_bytes=round(21.84 * GIB), device="cpu").surely_impossible


@pytest.mark.parametrize("flag", ["cpu-offload-gb", "hf-overrides", "kv-transfer-config"])
def test_a_flag_of_unknown_memory_forbids_pruning(flag: str) -> None:
    helped = LaunchConfig.of({flag: "10"})
    assert not model(QWEN3_14B, exact=True).predict(helped, total_bytes=20 * GIB).surely_impossible


def test_hungrier_configurations_fail_too_until_one_boots() -> None:
    failed = config(gpu_memory_utilization=0.95, max_num_seqs=512)
    hungrier = config(gpu_memory_utilization=0.97, max_num_seqs=1024)
    modest = config(gpu_memory_utilization=0.93, max_num_seqs=1024)
    learned = model(QWEN3_14B).after_failure(Failure.of("oom_graph"), failed, total_bytes=H200)
    assert learned.predict(hungrier, total_bytes=H200).surely_impossible
    assert not learned.predict(modest, total_bytes=H200).surely_impossible
    assert not learned.predict(config(), total_bytes=H200).surely_impossible
    refuted = learned.calibrated(BootFacts(), hungrier, total_bytes=H200)
    assert not refuted.predict(failed, total_bytes=H200).surely_impossible


@pytest.mark.parametrize("name", ["not_enough_free_memory", "oom_suspect", "profiling_disturbed", "host_oom", "killed"])
def test_failures_of_the_machine_teach_nothing(name: str) -> None:
    fresh = model(QWEN3_14B)
    assert fresh.after_failure(Failure.of(name), config(), total_bytes=H200) == fresh


def test_a_kv_failure_calibrates_by_its_margin() -> None:
    failure = Failure.of("kv_cache_too_small", margin=MarginBytes(24 * GIB, 10 * GIB))
    length = config(max_model_len=131_072)
    learned = model(QWEN3_14B).after_failure(failure, length, total_bytes=H200)
    prediction = learned.predict(length, total_bytes=H200)
    assert prediction.kv_bytes == pytest.approx(10 * GIB, rel=1e-6)
    assert prediction.margin_bytes == pytest.approx(-14 * GIB, rel=1e-6)
    assert prediction.feasible is False and not prediction.surely_impossible


KINDS = st.sampled_from([
    QWEN3_14B,
    QWEN3_8B,
    QWEN3_14B | {"sliding_window": 4096, "layer_types": ["sliding_attention"] * 5 + ["full_attention"]},
    QWEN3_14B | {"kv_lora_rank": 512, "qk_rope_head_dim": 64},
    QWEN3_14B | {"full_attention_interval": 4},
])  # fmt: skip
CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        "gpu-memory-utilization": st.sampled_from([0.5, 0.8, 0.9, 0.92, 0.95, 0.98]),
        "max-num-batched-tokens": st.sampled_from([512, 2048, 8192, 16384]),
        "max-num-seqs": st.sampled_from([16, 256, 1024]),
        "max-model-len": st.sampled_from([1024, 8192, 40960, 131072]),
        "kv-cache-dtype": st.sampled_from(["auto", "fp8", "int4_per_token_head"]),
        "quantization": st.sampled_from(["fp8", "bitsandbytes", "something_new"]),
        "tensor-parallel-size": st.sampled_from([1, 2, 4]),
        "enforce-eager": st.just(True),
        "kv-cache-memory-bytes": st.integers(GIB, 60 * GIB),
    },
).map(LaunchConfig.of)


class Books:
    """An engine that keeps its own books: it needs what the model's files need, and some overhead on top."""

    def __init__(self, source: dict[str, Any], total: int, left_out: float, workspace: int) -> None:
        self.shape = shape(source, exact=True)
        self.total, self.left_out, self.workspace = total, left_out, workspace

    def as_fp8(self, launch: LaunchConfig, length: int) -> float | None:
        return request_bytes(self.shape, MemoryFlags.of(launch.merged(config(kv_cache_dtype="fp8"))), length)

    def boot(self, launch: LaunchConfig) -> BootFacts | Failure:
        flags = MemoryFlags.of(launch)
        shrink = {None: 1.0, "fp8": 0.5, "bitsandbytes": 0.28}.get(flags.quantization, 0.3)
        loaded = self.shape.weights_bytes - self.shape.linear_bytes * (1 - shrink)
        weights = round(loaded * (1 - self.left_out) / flags.ranks)
        overhead = self.workspace + flags.batched_tokens(self.total) * 40_000 + flags.sequences(self.total) * 500_000
        if weights > self.total:
            return Failure.of("oom_weights", margin=MarginBytes(GIB, 0))
        if weights + overhead > self.total:
            return Failure.of("oom_activation", margin=MarginBytes(GIB, 0))
        budget = self.total * (flags.utilization or 0.92)
        kv_bytes = flags.kv_limit_bytes or round(budget - weights - overhead)
        if kv_bytes <= 0:
            return Failure.of("kv_cache_none", margin=MarginBytes(0, kv_bytes))
        length = flags.max_model_len or 1024
        # A 4-bit KV cache: half of an 8-bit one, and the scales.
        need = request_bytes(self.shape, flags, length) or 0.53 * (self.as_fp8(launch, length) or 0)
        if need > kv_bytes:
            return Failure.of("kv_cache_too_small", margin=MarginBytes(round(need), kv_bytes))
        if weights + overhead + kv_bytes + (0 if flags.eager else GIB) > self.total:
            return Failure.of("oom_graph", margin=MarginBytes(GIB, 0))
        tokens = max(1, round(kv_bytes / need * length))
        return BootFacts(weights_bytes=weights, available_kv_bytes=kv_bytes, kv_tokens=tokens, max_model_len=length)


@given(
    KINDS, st.lists(CONFIGS, min_size=1, max_size=8), st.integers(24, 141), st.floats(0, 0.12), st.integers(0, 4 * GIB)
)
@settings(max_examples=400, deadline=None)
def test_what_boots_is_never_pruned(
    source: dict[str, Any], launches: list[LaunchConfig], size: int, left_out: float, workspace: int
) -> None:
    total = size * GIB
    books, learned = Books(source, total, left_out, workspace), model(source, exact=True)
    for launch in launches:
        outcome = books.boot(launch)
        prediction = learned.predict(launch, total_bytes=total)
        if isinstance(outcome, BootFacts):
            assert not prediction.surely_impossible, prediction.why
            learned = learned.calibrated(outcome, launch, total_bytes=total)
        else:
            learned = learned.after_failure(outcome, launch, total_bytes=total)


def test_most_of_what_cannot_boot_is_pruned() -> None:
    draw, total = random.Random(1), 40 * GIB
    books, learned = Books(QWEN3_14B, total, 0.02, GIB // 2), model(QWEN3_14B, exact=True)
    pruned = failed = 0
    for _ in range(60):
        launch = config(
            gpu_memory_utilization=draw.choice([0.6, 0.8, 0.9]),
            max_model_len=draw.choice([8192, 40960, 131_072]),
            max_num_seqs=draw.choice([64, 256]),
        )
        outcome, prediction = books.boot(launch), learned.predict(launch, total_bytes=total)
        if isinstance(outcome, Failure):
            failed, pruned = failed + 1, pruned + prediction.surely_impossible
            learned = learned.after_failure(outcome, launch, total_bytes=total)
    assert failed > 10
    assert pruned > failed / 2


FP8: dict[str, FlagValue] = {"quantization": "fp8", "kv-cache-dtype": "fp8"}
BOOTED: list[tuple[dict[str, Any], dict[str, FlagValue], int]] = [
    (QWEN3_14B, {}, H200),
    (QWEN3_14B, {"enforce-eager": True}, H200),
    (QWEN3_14B, {"kv-cache-dtype": "fp8"}, H200),
    (QWEN3_14B, FP8 | {"max-num-batched-tokens": 16384, "max-num-seqs": 1024}, H200),
    (QWEN3_14B, FP8 | {"max-num-batched-tokens": 2048, "max-num-seqs": 512}, H200),
    (QWEN3_14B, FP8 | {"max-num-batched-tokens": 1024, "max-num-seqs": 512}, H200),
    (QWEN3_14B, FP8 | {"enforce-eager": True, "block-size": 32, "gpu-memory-utilization": 0.95}, H200),
    (QWEN3_8B, {"max-model-len": 40960}, round(79.25 * GIB)),
    (QWEN3_8B, {"max-model-len": 8192}, round(23.5 * GIB)),
]


@pytest.mark.parametrize(("source", "flags", "total"), BOOTED)
def test_measured_boots_are_never_pruned(source: dict[str, Any], flags: dict[str, FlagValue], total: int) -> None:
    assert not model(source, exact=True).predict(LaunchConfig.of(flags), total_bytes=total).surely_impossible


@pytest.mark.parametrize(
    ("extra", "bytes_per_token"),
    [
        ({}, 163_840),
        ({"num_key_value_heads": None}, 163_840 * 5),
        ({"kv_lora_rank": 512, "qk_rope_head_dim": 64}, 40 * 576 * 2),
        ({"text_config": {"num_hidden_layers": 20}}, 81_920),
        ({"quantization_config": {"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8}}}, 81_920),
        ({"full_attention_interval": 4}, 40_960),
        ({"hybrid_override_pattern": "M*M-" * 10}, 40_960),
        ({"num_kv_shared_layers": 20}, 81_920),
    ],
)
def test_kv_bytes_of_the_kinds_of_models(extra: dict[str, Any], bytes_per_token: int) -> None:
    found = shape_of({name: value for name, value in (QWEN3_14B | extra).items() if value is not None})
    assert found is not None
    assert request_bytes(found, MemoryFlags.of(config()), 10_000) == pytest.approx(10_000 * bytes_per_token)


def test_a_sliding_window_bounds_what_its_layers_keep() -> None:
    found = shape_of(QWEN3_14B | {"sliding_window": 1024, "sliding_window_pattern": 5})
    assert found is not None and (found.full_layers, found.sliding_layers) == (8, 32)
    short = request_bytes(found, MemoryFlags.of(config(max_num_batched_tokens=2048)), 5000)
    long = request_bytes(found, MemoryFlags.of(config(max_num_batched_tokens=2048)), 105_000)
    assert short == 5000 * 163_840
    assert long == 105_000 * 163_840 // 5 + 32 * 4096 * (1024 + 4096)


@pytest.mark.parametrize("source", [{}, {"num_hidden_layers": 2}, {"hidden_size": "x"}, {"architectures": []}])
def test_too_little_is_no_shape(source: dict[str, Any]) -> None:
    assert shape_of(source) is None


def write_model(folder: Path, tensors: dict[str, tuple[str, list[int]]], name: str = "model.safetensors") -> None:
    header = json.dumps(
        {key: {"dtype": dtype, "shape": size, "data_offsets": [0, 0]} for key, (dtype, size) in tensors.items()}
    )
    (folder / "config.json").write_text(json.dumps(TINY))
    (folder / name).write_bytes(len(header).to_bytes(8, "little") + header.encode())


def test_weights_come_from_the_headers(tmp_path: Path) -> None:
    tensors = {"embed.w": ("BF16", [4096, 256]), "layers.0.w": ("F8_E4M3", [256, 256]), "layers.1.w": ("F32", [10])}
    write_model(tmp_path, tensors)
    found = read_model_shape(tmp_path)
    assert found is not None and found.weights_exact
    assert found.weights_bytes == 4096 * 256 * 2 + 256 * 256 + 20
    assert found.linear_bytes == 256 * 256 + 20


def test_the_same_weights_in_two_formats_count_once(tmp_path: Path) -> None:
    write_model(tmp_path, {"w": ("BF16", [100])})
    write_model(tmp_path, {"layers.w": ("BF16", [100])}, "consolidated.safetensors")
    found = read_model_shape(tmp_path)
    assert found is not None and found.weights_bytes == 200


@pytest.mark.parametrize("content", [b"", b"\x00" * 8, b"\xff" * 20, b"\x05\0\0\0\0\0\0\0{bad}"])
def test_broken_weight_files_leave_a_guess(tmp_path: Path, content: bytes) -> None:
    write_model(tmp_path, {})
    (tmp_path / "model.safetensors").write_bytes(content)
    found = read_model_shape(tmp_path)
    assert found is not None and not found.weights_exact
