"""What must hold for any log: order, noise, encoding, prefixes and size do not change the verdict."""

import random
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_shapes import as_bytes, boot, errors, failing_log, line, reported, server_fails, traceback

from autotune.engine.failure_classes import CLASSES, Consequence
from autotune.engine.failures import Failure, classify, diagnose

CASES = reported()
NAMES = st.sampled_from(sorted(CASES))
# Verdicts that a longer log may replace by the cause itself.
VAGUE = {None, "unknown", "engine_died", "killed", "nccl", "invalid_combination", "compile_failed", "broken_install"}


WAYS: dict[str, Callable[[bytes], list[bytes]]] = {
    "ansi": lambda text: [b"\x1b[0;36m" + text.replace(b") ", b")\x1b[0m ", 1) + b"\x1b[0m"],
    "crlf": lambda text: [text + b"\r"],
    "compose": lambda text: [b"vllm-1  | " + text],
    "buildkite": lambda text: [b"  | [2026-11-30T09:00:00Z] " + text],
    "kubernetes": lambda text: [b"2026-11-30T09:00:00.123456789Z stderr F " + text],
    "cloud": lambda text: [b"ERROR 2026-11-30T09:00:00.123456789Z [resource.labels.containerName: vllm] " + text],
    "supervisor": lambda text: [b"2026-11-30 09:00:00.604 [Info] (Process) " + text],
    "fastchat": lambda text: [b"2026-11-30 09:00:00 | ERROR | stderr | " + text],
    "padded": lambda text: [text + b" " * 200],
    "rubbish": lambda text: [text, b"\xff\xfe\x00 \x80rubbish"],
}


def class_of(failure: Failure | None) -> str | None:
    return failure.cls.name if failure else None


@given(NAMES, st.data())
@settings(max_examples=150, deadline=None)
def test_a_prefix_never_names_another_cause(name: str, data: st.DataObject) -> None:
    lines = failing_log(CASES[name])
    cut = data.draw(st.integers(0, len(lines)))
    assert class_of(classify(as_bytes(lines[:cut]))) in VAGUE | {CASES[name]["class"]}


@given(NAMES, st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_other_processes_may_write_in_between(name: str, seed: int) -> None:
    lines, draw = failing_log(CASES[name]), random.Random(seed)
    noise = [
        line("Worker_TP1", "Waiting for rank 0", level="WARNING"),
        line("Worker_TP1", "Cache is not supported on this device, falling back", level="WARNING"),
        line("APIServer", "Waiting for 1 core engine proc(s) to start"),
        line("Worker_TP1", "No available shared memory broadcast block found in 60 seconds."),
    ]
    mixed = [text for original in lines for text in (original, *draw.sample(noise, draw.choice((0, 0, 1))))]
    assert class_of(classify(as_bytes(mixed))) == CASES[name]["class"]


@given(NAMES, st.sampled_from(sorted(WAYS)))
@settings(max_examples=100, deadline=None)
def test_the_way_a_log_was_caught_does_not_matter(name: str, way: str) -> None:
    caught = [part for text in failing_log(CASES[name]) for part in WAYS[way](text.encode())]
    assert class_of(classify([b"\n".join(caught)])) == CASES[name]["class"]


@given(st.binary(max_size=2000))
@settings(deadline=None)
def test_any_bytes_are_read_without_an_error_and_say_the_same_in_pieces(content: bytes) -> None:
    whole, cut = diagnose([content]), len(content) // 2
    assert diagnose([content[:cut], content[cut:]]) == whole
    assert whole.failure is None or whole.failure.cls.name in CLASSES


SCARY = [
    line("Worker", "fp8 KV cache is not supported by this backend, using auto", level="WARNING"),
    line("Worker", "CUDA out of memory is likely with these settings", level="WARNING"),
    line(
        "APIServer", "Found ulimit of 1024. This can cause `OSError: [Errno 24] Too many open files`", level="WARNING"
    ),
    line("Worker", "No available shared memory broadcast block found in 60 seconds.", level="INFO"),
    line("Worker", "Not enough SMs to use max_autotune_gemm mode: unsupported", level="WARNING"),
    line("Worker", "unable to save AOT compiled function to /c/torch_aot_compile: PicklingError", level="WARNING"),
    line("APIServer", "This model does not support disabling chunked prefill. The engine may crash", level="WARNING"),
    "UserWarning: gcc: unsupported option, RuntimeError: CUDA error may follow",
    "[W1130 09:00:10.104000000 TCPStore.cpp:115] Warning: recvValue failed, no space left on device",
    *[line("Worker", text, level="WARNING") for text in traceback("ImportError: No module named 'deep_gemm'")],
]


@given(
    st.integers(0, 2**32), st.sampled_from(["weights", "compile", "profile", "graphs", "server", "ready", "serving"])
)
@settings(max_examples=60, deadline=None)
def test_warnings_in_a_healthy_log_are_no_failure(seed: int, until: str) -> None:
    draw = random.Random(seed)
    mixed = [text for original in boot(until) for text in (*draw.sample(SCARY, draw.choice((0, 1, 2))), original)]
    assert classify(as_bytes(mixed)) is None


def test_an_error_that_the_boot_survived_is_no_failure() -> None:
    handled = errors(
        "APIServer", ["Error in inspecting model architecture", *traceback("OSError: No space left on device")]
    )
    assert classify(as_bytes(boot("config") + handled + boot("serving")[len(boot("config")) :])) is None


def test_bad_requests_do_not_make_a_failing_engine() -> None:
    refused = traceback("ValueError: max_num_seqs must be less than 3")
    requests = [
        *errors("APIServer", ["Error in preprocessing prompt inputs", *refused], "serving_chat.py:1"),
        "ERROR:    Exception in ASGI application",
        *server_fails(traceback("NotImplementedError: this request is not supported")),
    ]  # fmt: skip
    assert classify(as_bytes(boot("serving") + requests * 50)) is None


def test_a_stop_ends_the_search_for_causes() -> None:
    after = [
        line("APIServer", "[shutdown] API server: shutdown triggered"),
        *errors("EngineCore", traceback("torch.OutOfMemoryError: CUDA out of memory.")),
        line("EngineCore", "Worker proc VllmWorker-0 died unexpectedly (exit code: -15)", level="ERROR"),
    ]
    failure = classify(as_bytes(boot("serving") + after), stop_requested=True, exit_code=0)
    assert failure is not None
    assert failure.consequence is Consequence.NONE


@pytest.mark.parametrize(("clock", "is_stop"), [("09:05:01", True), ("09:09:00", False)])
def test_deaths_at_the_moment_of_our_stop_belong_to_it(clock: str, is_stop: bool) -> None:
    death = line("EngineCore", "Worker proc VllmWorker-0 died unexpectedly (exit code: -15)", level="ERROR")
    stop = line("APIServer", "[shutdown] API server: shutdown triggered", clock=clock)
    failure = classify(as_bytes([*boot("serving"), death, stop]), stop_requested=True, exit_code=0)
    assert failure is not None
    assert (failure.consequence is Consequence.NONE) == is_stop


def test_a_cause_before_the_stop_is_kept() -> None:
    stop = line("APIServer", "[shutdown] API server: shutdown triggered")
    lines = [*failing_log(CASES["oom_serving"]), stop]
    assert class_of(classify(as_bytes(lines), stop_requested=True, exit_code=-9)) == "oom_runtime"


def test_a_death_just_before_the_server_closes_is_no_stop() -> None:
    dead = errors("APIServer", ["vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue."])
    assert class_of(classify(as_bytes([*boot("serving"), *dead, "INFO:     Shutting down"]))) == "engine_died"


def test_the_last_boot_of_a_log_counts_once_one_had_come_up() -> None:
    stopped = [*boot("serving"), line("APIServer", "[shutdown] API server: shutdown triggered")]
    assert class_of(classify(as_bytes(stopped + failing_log(CASES["oom_graph"])))) == "oom_graph"
    assert classify(as_bytes(failing_log(CASES["port_uvicorn"]) + boot("serving"))) is None


def test_access_tokens_are_not_repeated() -> None:
    words = "OSError: You are trying to access a gated repo with token hf_AbCdEfGhIjKlMnOpQrStUv"
    diagnosis = diagnose(as_bytes([
        line("APIServer", "non-default args: {'model': 'm', 'api_key': 'sk-1234567890abcdefgh'}"), *traceback(words),
    ]))  # fmt: skip
    assert diagnosis.failure is not None and diagnosis.failure.line is not None
    assert "hf_AbC" not in diagnosis.failure.line
    assert diagnosis.facts.non_default_args["api_key"] == "***"


def large_log(size: int, body: list[str], tail: list[str]) -> Iterator[bytes]:
    yield "\n".join(boot("serving")).encode() + b"\n"
    block = "\n".join(body).encode() + b"\n"
    for _ in range(size // len(block)):
        yield block
    yield "\n".join(tail).encode()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["traffic", "errors", "progress"])
def test_a_hundred_megabytes_take_seconds(kind: str) -> None:
    body = {
        "traffic": [*boot("serving")[-2:], "(APIServer pid=1) DEBUG 11-30 09:00:00 [x.py:1] step"] * 20,
        "errors": errors("APIServer", ["Error in generator", *traceback("ValueError: x", ("a",))], "serving.py:1") * 20,
        "progress": ["\r".join(f"Capturing CUDA graphs: {number}%" for number in range(100))],
    }[kind]  # fmt: skip
    started = time.process_time()
    failure = classify(large_log(100 << 20, body, failing_log(CASES["oom_serving"])[-15:]))
    assert time.process_time() - started < 20
    assert class_of(failure) == "oom_runtime"
