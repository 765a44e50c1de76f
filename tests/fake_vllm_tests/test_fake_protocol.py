"""The stand-in speaks as vLLM speaks, and its counters tell the truth unless told to lie."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fake_vllm import make_fake_python
from fake_vllm.running import Server, serve


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fake_python(tmp_path_factory.mktemp("fake") / "venv", {"time_scale": 0.2})


@pytest.fixture(scope="module")
def server(python: Path):
    with serve(python, "--served-model-name", "tiny-nonce", "--max-model-len", "256") as running:
        yield running


def texts(events: list) -> list[str]:
    return [choice["text"] for event in events if event != "[DONE]" for choice in event["choices"]]


def test_boots_in_well_under_two_seconds(python: Path) -> None:
    began = time.monotonic()
    with serve(python):
        assert time.monotonic() - began < 2.0


def test_models_lists_the_served_name(server: Server) -> None:
    status, listing = server.ask("/v1/models")
    assert status == 200
    assert [model["id"] for model in listing["data"]] == ["tiny-nonce"]
    assert listing["data"][0]["max_model_len"] == 256


def test_stream_has_one_chunk_per_token_then_usage_then_done(server: Server) -> None:
    events = server.stream({"model": "tiny-nonce", "prompt": [5, 6, 7], "max_tokens": 4})
    assert len(texts(events)) == 4
    assert events[-3]["choices"][0]["finish_reason"] == "length"
    assert events[-2]["choices"] == [] and events[-2]["usage"]["completion_tokens"] == 4
    assert events[-2]["usage"]["prompt_tokens"] == 3
    assert events[-1] == "[DONE]"


def test_whole_answer_equals_streamed_one(server: Server) -> None:
    body = {"prompt": "some words w12", "max_tokens": 5}
    whole = server.ask("/v1/completions", body)[1]
    assert whole["choices"][0]["text"] == "".join(texts(server.stream(body)))
    assert whole["usage"]["total_tokens"] == 8


def test_chat(server: Server) -> None:
    body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 3}
    answer = server.ask("/v1/chat/completions", body)[1]
    assert answer["choices"][0]["message"]["role"] == "assistant"
    events = server.stream(body, path="/v1/chat/completions")
    assert events[0]["choices"][0]["delta"]["role"] == "assistant"
    assert (
        "".join(e["choices"][0]["delta"]["content"] for e in events[:-2]) == answer["choices"][0]["message"]["content"]
    )


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"model": "another", "prompt": [1]}, 404),
        ({"prompt": [999_999]}, 400),
        ({"prompt": [1] * 256}, 400),
        ({"prompt": ""}, 400),
    ],
)
def test_refuses_what_vllm_refuses(server: Server, body: dict, status: int) -> None:
    answer = server.ask("/v1/completions", body)
    assert answer[0] == status
    assert answer[1]["error"]["code"] == status


def test_fewer_tokens_than_asked_at_the_end_of_the_context(server: Server) -> None:
    answer = server.ask("/v1/completions", {"prompt": [1] * 250, "max_tokens": 100})[1]
    assert answer["usage"]["completion_tokens"] == 6
    assert answer["choices"][0]["finish_reason"] == "length"


def test_text_and_tokens_turn_into_each_other(server: Server) -> None:
    tokens = server.ask("/tokenize", {"prompt": "w3 w1 w4"})[1]["tokens"]
    assert tokens == [3, 1, 4]
    assert server.ask("/detokenize", {"tokens": tokens})[1]["prompt"] == " w3 w1 w4"


def test_counters_agree_with_the_client(python: Path) -> None:
    with serve(python) as server, ThreadPoolExecutor(8) as pool:
        asked = [(n + 1, 3 * n + 2) for n in range(8)]
        events = list(pool.map(lambda a: server.stream({"prompt": [1] * a[0], "max_tokens": a[1]}), asked))
        usages = [event[-2]["usage"] for event in events]
        assert [u["completion_tokens"] for u in usages] == [made for _, made in asked]
        assert server.metric("generation_tokens_total") == sum(made for _, made in asked)
        assert server.metric("prompt_tokens_total") == sum(prompt for prompt, _ in asked)
        assert server.metric("request_success_total", finished_reason="length") == 8
        assert server.metric("num_requests_running") == server.metric("num_requests_waiting") == 0
        assert server.metric("kv_cache_usage_perc") == 0


def test_prefixes_are_cached_until_reset(python: Path) -> None:
    with serve(python, "--block-size", "16", "--enable-prompt-tokens-details") as server:
        body = {"prompt": list(range(64)), "max_tokens": 2}
        first, second = server.ask("/v1/completions", body)[1], server.ask("/v1/completions", body)[1]
        assert first["usage"]["prompt_tokens_details"] is None
        assert second["usage"]["prompt_tokens_details"] == {"cached_tokens": 63}
        assert server.metric("prefix_cache_hits_total") == 63
        assert server.ask("/reset_prefix_cache", {})[1] == {"success": True}
        assert server.ask("/v1/completions", body)[1]["usage"]["prompt_tokens_details"] is None


def test_developer_routes_need_the_variable(python: Path) -> None:
    with serve(python, env={"VLLM_SERVER_DEV_MODE": "0"}) as server:
        assert server.ask("/server_info")[0] == 404
    with serve(python, "--max-num-seqs", "7") as server:
        assert server.ask("/server_info?config_format=json")[1]["vllm_config"]["scheduler_config"]["max_num_seqs"] == 7


def test_api_server_module_serves_too(python: Path) -> None:
    import subprocess

    argv = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", "tiny", "--max-num-seqs", "0"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20)
    assert done.returncode == 1 and "validation error for SchedulerConfig" in done.stderr


def test_the_engine_process_has_its_title_and_hides_its_environment(python: Path) -> None:
    with serve(python, env={"MARK": "x"}) as server:
        pid = server.family()["VLLM::EngineCor"]
        assert b"MARK" not in Path(f"/proc/{pid}/environ").read_bytes()
        assert Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"VLLM::EngineCore\0")
        assert os.getsid(pid) == server.process.pid
    with serve(python, env={"MARK": "x", "SPT_NOENV": "1"}) as server:
        assert b"MARK=x" in Path(f"/proc/{server.family()['VLLM::EngineCor']}/environ").read_bytes()


def test_logprobs_follow_the_model(server: Server) -> None:
    body = {"prompt": [1, 2, 3], "max_tokens": 3, "logprobs": 2, "prompt_logprobs": 5}
    choice = server.ask("/v1/completions", body)[1]["choices"][0]
    assert choice["logprobs"]["token_logprobs"] == [max(top.values()) for top in choice["logprobs"]["top_logprobs"]]
    assert choice["prompt_logprobs"][0] is None
    assert all(len(top) >= 5 for top in choice["prompt_logprobs"][1:])
    assert "2" in choice["prompt_logprobs"][1]


def test_stream_interval_puts_more_tokens_into_a_chunk(python: Path) -> None:
    with serve(python, "--stream-interval", "4") as server:
        chunks = texts(server.stream({"prompt": [1], "max_tokens": 10}))
        assert [len(chunk.split()) for chunk in chunks] == [1, 4, 4, 1]


def test_max_num_active_seqs_caps_what_runs(python: Path) -> None:
    with serve(python, "--max-num-active-seqs", "2") as server, ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(server.stream, {"prompt": [1], "max_tokens": 300}) for _ in range(4)]
        while server.metric("num_requests_waiting") < 2:
            time.sleep(0.02)
        assert server.metric("num_requests_running") == 2
        assert all(job.result()[-1] == "[DONE]" for job in jobs)
