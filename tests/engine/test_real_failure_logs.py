"""Logs that real vLLM wrote: those of the shared collection where it is there, and our own."""

import json
from pathlib import Path

import pytest

from autotune.engine.failure_classes import Consequence
from autotune.engine.failures import Failure, classify, diagnose
from autotune.engine.logs import GIB, BootPhase

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "failure-logs"
OURS = Path(__file__).parent / "logs" / "real"

# The words of expected.json: the class from the log alone, None for no failure.
CLASS_OF_WORDS = {
    "invalid combination": "invalid_combination",
    "invalid flag": "invalid_flag",
    "invalid flag value": "invalid_value",
    "unsupported by the backend": "unsupported_by_backend",
    "engine died while serving (exit code 0)": "engine_died",
    "not enough host memory for the KV cache": "host_memory_kv",
    "KV cache smaller than max-model-len": "kv_cache_too_small",
    "length beyond the model": "length_beyond_model",
    "model not found": "model_not_found",
    "quantization without such a checkpoint": "unsupported_quantization",
    "unknown quantization": "unsupported_quantization",
    "not enough NUMA nodes for TP": "numa",
    "weights not found": "weights_missing",
    "host out of memory (worker killed by the kernel)": "killed",
}
NEEDS_MORE_THAN_THE_LOG = {
    "API server killed; orphans remain",
    "host out of memory (killed by the kernel; see the exit code and the cgroup counter)",
}


def expected() -> dict[str, str]:
    path = SHARED / "expected.json"
    return json.loads(path.read_text()) if path.exists() else {}


def is_harmless(failure: Failure | None) -> bool:
    return failure is None or failure.consequence is Consequence.NONE


@pytest.mark.skipif(not expected(), reason="the shared collection of real logs is not here")
@pytest.mark.parametrize(("name", "words"), expected().items())
def test_shared_log_gets_its_class(name: str, words: str) -> None:
    failure = classify(SHARED / name)
    if words in CLASS_OF_WORDS:
        assert failure is not None
        assert failure.cls.name == CLASS_OF_WORDS[words]
    else:
        assert words.startswith(("no failure", "stop")) or words in NEEDS_MORE_THAN_THE_LOG
        assert is_harmless(failure)


@pytest.mark.skipif(not expected(), reason="the shared collection of real logs is not here")
@pytest.mark.parametrize(
    ("name", "words"), [(n, w) for n, w in expected().items() if w.startswith(("stop", "no fail"))]
)
@pytest.mark.parametrize("exit_code", [0, -9, -15, None])
def test_a_stop_that_we_asked_for_is_no_failure(name: str, words: str, exit_code: int | None) -> None:
    assert is_harmless(classify(SHARED / name, exit_code=exit_code, stop_requested=True))


@pytest.mark.skipif(not expected(), reason="the shared collection of real logs is not here")
@pytest.mark.parametrize(
    ("name", "exit_code", "oom_kills", "cls"),
    [
        ("kill9_apiserver_serving.log", -9, 0, "killed"),
        ("kill9_apiserver_serving.log", 137, None, "killed"),
        ("kill9_enginecore_serving.log", 0, 0, "engine_died"),
        ("kill9_enginecore_serving.log", 0, 1, "host_oom"),
        ("oom_cgroup_1200m_startup.log", -9, 1, "host_oom"),
        ("oom_cgroup_2g_kv1500m.log", 1, 1, "host_oom"),
        ("gmu_default_092_started.log", 0, 0, "stopped_by_other"),
        ("killpg_sigkill_serving.log", 0, 0, "exited"),
        ("killpg_sigkill_serving.log", -11, 0, "crashed"),
        ("sigterm_startup_api_import.log", -15, 0, "stopped_by_other"),
    ],
)
def test_an_exit_that_nobody_asked_for_is_a_failure(name: str, exit_code: int, oom_kills: int, cls: str) -> None:
    failure = classify(SHARED / name, exit_code=exit_code, stop_requested=False, oom_kills=oom_kills)
    assert failure is not None
    assert failure.cls.name == cls
    assert failure.exit_code == exit_code
    assert not failure.teaches


OUR_CLASSES: dict[str, str | None] = {
    "ambiguous": "invalid_flag",
    "bad_backend": "invalid_value",
    "bad_config": "model_config",
    "bad_cudagraph_key": "invalid_value",
    "bad_json_flag": "invalid_value",
    "bad_kv_dtype": "invalid_value",
    "bad_load_format": "invalid_value",
    "bad_tool_parser": "invalid_value",
    "batched_lt_seqs": "invalid_combination",
    "cuda_free_memory": "not_enough_free_memory",
    "cuda_graphs_taken": "oom_graph",
    "cuda_kv_below_one_request": "kv_cache_too_small",
    "cuda_kv_blocks": "oom_kv_cache",
    "cuda_kv_of_112_gib": "oom_kv_cache",
    "cuda_kv_of_130_gib": "oom_kv_cache",
    "cuda_length_800000": "kv_cache_too_small",
    "cuda_memory_taken": "not_enough_free_memory",
    "cuda_no_context": "not_enough_free_memory",
    "cuda_no_room_for_kv": "kv_cache_none",
    "cuda_tokens_1048576": "oom_activation",
    "cuda_weights_no_room": "oom_weights",
    "gmu_full": "not_enough_free_memory",
    "gmu_over": "invalid_value",
    "gmu_too_low": "kv_cache_none",
    "healthy": None,
    "healthy_compiled": None,
    "host_oom_tried": "host_oom",
    "port_in_use": "port_in_use",
    "quant_fp8": "unsupported_quantization",
    "spec_bad": "invalid_combination",
    "tp3": "invalid_combination",
    "unsupported_arch": "unsupported_arch",
    "weights_truncated": "weights_corrupt",
    "worker_killed": "engine_died",
    "zero_seqs": "invalid_value",
}


@pytest.mark.parametrize("name", OUR_CLASSES)
def test_our_real_log_gets_its_class(name: str) -> None:
    failure = classify(OURS / f"{name}.log")
    if OUR_CLASSES[name] is None:
        assert is_harmless(failure)
    else:
        assert failure is not None
        assert failure.cls.name == OUR_CLASSES[name]


@pytest.mark.parametrize(("name", "phase"), [("cuda_weights_no_room", "weights"), ("cuda_graphs_taken", "graphs")])
def test_memory_that_a_neighbour_took_teaches_nothing_about_the_configuration(name: str, phase: str) -> None:
    log = OURS / f"{name}.log"
    empty_at_first = classify(log, exit_code=1, baseline_free_bytes=int(139.3 * GIB))
    assert empty_at_first is not None
    assert (empty_at_first.cls.name, empty_at_first.phase) == ("oom_neighbour", phase)
    assert not empty_at_first.teaches
    neighbour_from_the_start = classify(log, exit_code=1, baseline_free_bytes=5 * GIB)
    assert neighbour_from_the_start is not None and neighbour_from_the_start.teaches


def test_memory_that_only_the_engine_holds_is_not_a_neighbours() -> None:
    failure = classify(OURS / "cuda_tokens_1048576.log", exit_code=1, baseline_free_bytes=int(139.3 * GIB))
    assert failure is not None and failure.cls.name == "oom_activation"


def test_a_worker_that_the_kernel_killed_is_told_by_the_counter() -> None:
    failure = classify(OURS / "worker_killed.log", exit_code=1, stop_requested=False, oom_kills=1)
    assert failure is not None
    assert failure.cls.name == "host_oom"


@pytest.mark.parametrize("name", [name for name, cls in OUR_CLASSES.items() if cls])
def test_a_failed_start_stays_a_failure_with_its_exit_code(name: str) -> None:
    failure = classify(OURS / f"{name}.log", exit_code=1, stop_requested=False)
    assert failure is not None
    assert failure.cls.name == OUR_CLASSES[name]
    assert failure.phase is not None and failure.phase.rank <= BootPhase.SERVER.rank


def test_facts_of_a_real_boot() -> None:
    facts = diagnose(OURS / "healthy.log").facts
    assert facts.ready
    assert facts.vllm_version == "0.32.0"
    assert facts.enforce_eager is True
    assert facts.architecture == "Qwen3ForCausalLM"
    assert facts.max_model_len == 4096
    assert facts.kv_bytes == 64 << 20
    assert facts.kv_tokens == 65_536
    assert facts.model_runner == "V1"
    assert facts.init_engine_s is not None
    assert facts.non_default_args["kv_cache_memory_bytes"] == str(64 << 20)


def test_phases_of_a_real_boot_are_in_order_and_timed() -> None:
    facts = diagnose(OURS / "healthy_compiled.log").facts
    ranks = [phase.rank for phase in facts.phases_s]
    assert ranks == sorted(ranks)
    assert {"config", "weights", "compile", "profile", "server"} <= set(facts.phases_s)
    assert facts.phases_s[next(phase for phase in facts.phases_s if phase == "compile")] > 10
