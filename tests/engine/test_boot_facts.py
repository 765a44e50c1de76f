"""Facts and phases of a boot, from the words of vLLM 0.8 to 0.33."""

import pytest
from log_shapes import as_bytes, boot, line

from autotune.engine.failures import diagnose
from autotune.engine.logs import BootFacts, BootPhase

GIB = 1 << 30


def read_boot(log: list[bytes]) -> BootFacts:
    return diagnose(log).facts


def test_a_gpu_boot_gives_all_its_numbers() -> None:
    facts = read_boot(as_bytes(boot("serving")))
    assert facts.ready
    assert facts.phase is BootPhase.SERVING
    assert facts.vllm_version == "0.32.0"
    assert facts.model == "org/m"
    assert facts.architecture == "Qwen3ForCausalLM"
    assert facts.enforce_eager is False
    assert facts.quantization is None
    assert facts.kv_cache_dtype == "auto"
    assert facts.max_model_len == 40960
    assert facts.chunked_prefill_tokens == 8192
    assert facts.attention_backend == "FLASH_ATTN"
    assert facts.weights_bytes == round(27.52 * GIB)
    assert facts.weights_load_s == 6.51
    assert facts.compile_s == 38.11
    assert facts.compile_cached is False
    assert facts.available_kv_bytes == facts.kv_bytes == round(99.27 * GIB)
    assert facts.kv_tokens == 650_560
    assert facts.max_concurrency == 15.88
    assert facts.graphs_bytes == round(0.79 * GIB)
    assert facts.graphs_s == 8
    assert facts.total_device_bytes == round(139.8 * GIB)
    assert facts.free_at_start_bytes == round(139.1 * GIB)
    assert facts.consumed_bytes == round(28.1 * GIB)
    assert facts.peak_activation_bytes == round(1.23 * GIB)
    assert facts.suggested_kv_bytes == (105612345678, 116812345678)
    assert facts.init_engine_s == 59.12
    assert facts.non_default_args["max_num_seqs"] == "512"


def test_phases_are_timed_by_the_logs_own_clock() -> None:
    assert read_boot(as_bytes(boot("serving"))).phases_s == {
        "config": 22, "weights": 9, "compile": 44, "profile": 14, "graphs": 1, "server": 4, "ready": 16,
    }  # fmt: skip


@pytest.mark.parametrize("until", ["config", "weights", "compile", "profile", "server", "ready", "serving"])
def test_the_phase_is_known_at_any_moment(until: str) -> None:
    assert read_boot(as_bytes(boot(until))).phase == until


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("Model loading took 14.2488 GiB and 3.2 seconds", "weights_bytes", round(14.2488 * GIB)),
        ("Loading model weights took 14.99 GB", "weights_bytes", round(14.99 * GIB)),
        ("torch.compile takes 13.93 s in total", "compile_s", 13.93),
        ("Available KV cache memory: -0.42 GiB", "available_kv_bytes", round(-0.42 * GIB)),
        ("GPU KV cache size: 43,520 tokens", "kv_tokens", 43_520),
        ("Maximum concurrency for 40,960 tokens per request: 1.06x", "max_concurrency", 1.06),
        ("init engine (profile, create kv cache, warmup model) took 23.4 seconds", "init_engine_s", 23.4),
        ("Using Flash Attention backend on V1 engine.", "attention_backend", "Flash Attention"),
        ("Using AttentionBackendEnum.FLASHINFER backend.", "attention_backend", "FLASHINFER"),
        ("Using V2 Model Runner", "model_runner", "V2"),
        ("Directly load AOT compilation from path /c/torch_aot_compile/x", "compile_cached", True),
        (
            "Initial free memory 78.1 GiB, reserved 6.0 GiB memory for KV Cache as specified by",
            "available_kv_bytes",
            6 * GIB,
        ),
        ("Auto set (3.5/21.84) GiB for KV cache on node 0", "available_kv_bytes", round(3.5 * GIB)),
    ],
)
def test_words_of_other_versions(text: str, name: str, value: object) -> None:
    assert getattr(read_boot(as_bytes([line("EngineCore", text)])), name) == value


def test_the_worker_with_the_least_room_counts() -> None:
    workers = [
        line("Worker_TP0", "Available KV cache memory: 20.0 GiB"),
        line("Worker_TP1", "Available KV cache memory: 18.5 GiB"),
    ]
    assert read_boot(as_bytes(workers)).available_kv_bytes == round(18.5 * GIB)


def test_errors_carry_no_facts() -> None:
    assert read_boot(as_bytes([line("Worker", "GPU KV cache size: 1 tokens", level="ERROR")])).kv_tokens is None


def test_a_second_boot_starts_over() -> None:
    facts = read_boot(as_bytes(boot("serving") + boot("weights")))
    assert not facts.ready
    assert facts.kv_tokens is None


def test_new_year_between_two_lines() -> None:
    lines = [
        line("APIServer", "non-default args: {}").replace("11-30 09:05:00", "12-31 23:59:58"),
        line("Worker", "Starting to load model m...").replace("11-30 09:05:00", "01-01 00:00:03"),
    ]
    assert read_boot(as_bytes(lines)).phases_s == {"config": 5}
