"""Trouble under load and at the end, each as real vLLM shows it or as a broken server would."""

import http.client
import math
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fake_vllm import make_fake_python, set_behaviour
from fake_vllm.running import Server, serve

LONG = {"prompt": [1, 2, 3], "max_tokens": 400}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fake_python(tmp_path_factory.mktemp("fake") / "venv")


@contextmanager
def behaving(python: Path, *flags: str, **behaviour: Any) -> Iterator[Server]:
    set_behaviour(python, {"time_scale": 0.2, **behaviour})
    with serve(python, *flags) as server:
        yield server


def in_background(server: Server, body: dict, limit_s: float = 30.0) -> tuple[threading.Thread, list]:
    events: list = []

    def run() -> None:
        try:
            events.extend(server.stream(body, limit_s=limit_s))
        except (OSError, http.client.HTTPException) as error:
            events.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while server.metric("num_requests_running") < 1:
        time.sleep(0.01)
    return thread, events


def errors(events: list) -> list[dict]:
    return [event["error"] for event in events if isinstance(event, dict) and "error" in event]


@pytest.mark.parametrize("name", ["oom_runtime", "engine_died", "unknown.serving", "gpu_fault.runtime"])
def test_engine_dies_mid_stream_with_an_error_event_done_and_exit_code_0(python: Path, name: str) -> None:
    with behaving(python, fail=name, fail_after_tokens=20) as server:
        events = server.stream(LONG)
        assert events[-1] == "[DONE]"
        assert "EngineCore encountered an issue" in errors(events)[0]["message"]
        assert 10 < len(events) < 40
        assert server.process.wait(5) == 0
        assert "EngineDeadError" in server.log


def test_health_is_503_between_engine_death_and_exit(python: Path) -> None:
    with behaving(python, linger_s=1.0) as server:
        os.kill(server.family()["VLLM::EngineCor"], signal.SIGKILL)
        time.sleep(0.2)
        assert server.ask("/health")[0] == 503
        assert server.process.wait(5) == 0


def test_hangs_under_load_while_health_stays_200(python: Path) -> None:
    with behaving(python, hang_after_tokens=10) as server:
        in_background(server, LONG, limit_s=2.0)
        time.sleep(0.5)
        made = server.metric("generation_tokens_total")
        time.sleep(0.3)
        assert server.metric("generation_tokens_total") == made < 20
        assert server.metric("num_requests_running") == 1
        assert server.ask("/health")[0] == 200


@pytest.mark.parametrize("code", [0, 3])
def test_exits_for_no_reason(python: Path, code: int) -> None:
    with behaving(python, exit_after_s=0.3, exit_code=code) as server:
        assert server.process.wait(5) == code


def test_sigterm_aborts_streams_with_usage_and_done(python: Path) -> None:
    with behaving(python) as server:
        thread, events = in_background(server, LONG)
        server.process.terminate()
        assert server.process.wait(5) == 0
        thread.join()
        assert events[-3]["choices"][0]["finish_reason"] == "abort"
        assert 0 < events[-2]["usage"]["completion_tokens"] < 400
        assert events[-1] == "[DONE]"


def test_sigterm_drains_within_the_shutdown_timeout(python: Path) -> None:
    with behaving(python, "--shutdown-timeout", "20") as server:
        thread, events = in_background(server, {**LONG, "max_tokens": 100})
        server.process.terminate()
        assert server.process.wait(10) == 0
        thread.join()
        assert events[-2]["usage"]["completion_tokens"] == 100


def test_sigint_under_load_stalls_until_the_client_leaves(python: Path) -> None:
    with behaving(python) as server:
        thread, events = in_background(server, LONG, limit_s=1.5)
        server.process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        assert server.process.poll() is None
        assert "VLLM::EngineCor" not in server.family()
        thread.join()
        assert isinstance(events[-1], TimeoutError)
        assert server.process.wait(5) == 0


def test_sigint_when_idle_stops(python: Path) -> None:
    with behaving(python) as server:
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(5) == 0


def test_killed_api_server_leaves_the_engine_behind(python: Path) -> None:
    with behaving(python) as server:
        core = server.family()["VLLM::EngineCor"]
        server.process.kill()
        server.process.wait()
        time.sleep(0.3)
        assert server.family().get("VLLM::EngineCor") == core


def test_workers_end_with_their_engine(python: Path) -> None:
    with behaving(python, workers=2) as server:
        assert {"VLLM::Worker_TP", "VLLM::EngineCor"} <= set(server.family())
        server.process.kill()
        time.sleep(0.3)
        assert "VLLM::Worker_TP" in server.family()
        os.kill(server.family()["VLLM::EngineCor"], signal.SIGKILL)
        time.sleep(0.3)
        assert "VLLM::Worker_TP" not in server.family()


def test_orphan_survives_a_clean_stop(python: Path) -> None:
    with behaving(python, orphan=True) as server:
        core = server.family()["VLLM::EngineCor"]
        server.process.terminate()
        assert server.process.wait(5) == 0
        os.kill(core, signal.SIGTERM)
        time.sleep(0.2)
        assert server.family().get("VLLM::EngineCor") == core


def test_ignores_sigterm_while_serving(python: Path) -> None:
    with behaving(python, sigterm="ignore") as server:
        server.process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            server.process.wait(0.5)
        assert server.ask("/health")[0] == 200


def test_nothing_outlives_its_time(python: Path) -> None:
    with behaving(python, orphan_life_s=1) as server:
        server.process.kill()
        server.process.wait()
        time.sleep(1.5)
        assert server.family() == {}


def test_answers_slowly(python: Path) -> None:
    with behaving(python, slow_s=0.5) as server:
        began = time.monotonic()
        server.ask("/v1/completions", {"prompt": [1], "max_tokens": 1})
        assert time.monotonic() - began >= 0.5


def test_sends_tokens_in_bursts(python: Path) -> None:
    with behaving(python, burst_s=10.0) as server:
        events = server.stream({"prompt": [1], "max_tokens": 50})
        assert len(events) == 3 and events[-2]["usage"]["completion_tokens"] == 50


def test_outputs_shorter_than_asked(python: Path) -> None:
    with behaving(python, short_output=1.0) as server:
        events = server.stream({"prompt": [1], "max_tokens": 50})
        assert events[-2]["usage"]["completion_tokens"] == 25
        assert events[-3]["choices"][0]["finish_reason"] == "stop"


def test_loses_text_but_counts_it(python: Path) -> None:
    with behaving(python, lost_tokens=1.0) as server:
        events = server.stream({"prompt": [1], "max_tokens": 5})
        assert all(not e["choices"][0]["text"] for e in events[:-2])
        assert events[-2]["usage"]["completion_tokens"] == 5


def test_error_chunk_in_one_request_only(python: Path) -> None:
    with behaving(python, error_chunk=0.5) as server:
        outcomes = [bool(errors(server.stream({"prompt": [1], "max_tokens": 4}))) for _ in range(16)]
        assert 0 < sum(outcomes) < 16
        assert server.ask("/health")[0] == 200


def test_503(python: Path) -> None:
    with behaving(python, http_503=1.0) as server:
        assert server.ask("/v1/completions", {"prompt": [1]})[0] == 503


def test_pretends_to_be_another_model(python: Path) -> None:
    with behaving(python, "--served-model-name", "mine", served_as="theirs") as server:
        assert server.ask("/v1/models")[1]["data"][0]["id"] == "theirs"
        assert server.ask("/v1/completions", {"model": "mine", "prompt": [1]})[0] == 200


def test_lies_about_itself(python: Path) -> None:
    lies = {"metrics_factor": 2.0, "ignored_flags": ["kv-cache-dtype"]}
    with behaving(python, "--kv-cache-dtype", "fp8", **lies) as server:
        server.ask("/v1/completions", {"prompt": [1], "max_tokens": 10})
        assert server.metric("generation_tokens_total") == 20
        assert server.ask("/server_info")[1]["vllm_config"]["cache_config"]["cache_dtype"] == "auto"
    with behaving(python, no_metrics=True) as server:
        assert server.ask("/metrics") == (200, "")


def test_garbage_is_fast_and_wrong(python: Path) -> None:
    body = {"prompt": list(range(40)), "max_tokens": 8, "prompt_logprobs": 1}
    answers = []
    rule = {"when": {"kv-cache-dtype": "int8_per_token_head"}, "garbage": True}
    for flags in ((), ("--kv-cache-dtype", "fp8"), ("--kv-cache-dtype", "int8_per_token_head")):
        with behaving(python, *flags, rules=[rule]) as server:
            answers.append(server.ask("/v1/completions", body)[1]["choices"][0])
    assert answers[0]["text"] == answers[1]["text"] != answers[2]["text"]
    assert answers[0]["prompt_logprobs"] != answers[2]["prompt_logprobs"]


def perplexity(choice: dict, prompt: list[int]) -> float:
    scores = [
        entry[str(token)]["logprob"] for token, entry in zip(prompt[1:], choice["prompt_logprobs"][1:], strict=True)
    ]
    return math.exp(-sum(scores) / len(scores))


def test_text_is_likely_unless_the_model_is_broken(python: Path) -> None:
    text = "It was a bright cold day in a place that nobody had named, and all the clocks agreed. " * 3
    found = []
    for behaviour in ({}, {"precision_noise": 0.1}, {"garbage": True}):
        with behaving(python, **behaviour) as server:
            prompt = server.ask("/tokenize", {"prompt": text})[1]["tokens"]
            body = {"prompt": prompt, "max_tokens": 1, "prompt_logprobs": 20}
            found.append(perplexity(server.ask("/v1/completions", body)[1]["choices"][0], prompt))
    assert found[0] < 20 and found[1] == pytest.approx(found[0], rel=0.1)
    assert found[2] > 1000


def test_precision_noise_bends_probabilities_a_little(python: Path) -> None:
    body = {"prompt": list(range(40)), "max_tokens": 1, "logprobs": 20}
    tops = []
    for noise in (0.0, 0.05):
        with behaving(python, precision_noise=noise) as server:
            choice = server.ask("/v1/completions", body)[1]["choices"][0]
            tops.append(choice["logprobs"]["top_logprobs"][0])
    assert tops[0].keys() == tops[1].keys()
    assert 0 < max(abs(tops[0][t] - tops[1][t]) for t in tops[0]) < 0.5
