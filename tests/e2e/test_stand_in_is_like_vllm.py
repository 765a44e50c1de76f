"""The stand-in for vLLM beside the real one: whatever it says, the real one says too, under the same names."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_vllm import make_fake_python

from autotune.engine import probe
from autotune.engine.boot import boot
from autotune.engine.engine import Engine
from autotune.engine.install import resolve_install
from autotune.engine.types import EngineSpec
from autotune.engine.warm import WarmServer
from autotune.space.config import LaunchConfig

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

BLOCKS = LaunchConfig.of({"block-size": 32})


@pytest.fixture(scope="module")
def both(
    spec_of: Callable[[Path], EngineSpec], warm: WarmServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Engine, Engine]]:
    """(stand-in, real one)."""
    folder = tmp_path_factory.mktemp("both")
    spec = spec_of(folder / "real.log")
    real = replace(spec, config=spec.config.merged(BLOCKS))
    stand_in = resolve_install(make_fake_python(folder / "venv", {"platform": "cpu"}))
    fake = replace(real, install=stand_in, log_path=folder / "fake.log", cache_root=folder / "cache")
    with boot(fake) as fake_engine, boot(real, warm=warm) as real_engine:
        yield fake_engine, real_engine


def paths(value: Any, prefix: str = "") -> set[str]:
    """Every key in a JSON value, with where it is; lists count by their first element."""
    if isinstance(value, dict):
        return {p for key, inner in value.items() for p in {f"{prefix}.{key}", *paths(inner, f"{prefix}.{key}")}}
    if isinstance(value, list) and value:
        return paths(value[0], f"{prefix}[]")
    return set()


def assert_said_by_both(fake: Any, real: Any) -> None:
    assert paths(fake) <= paths(real), paths(fake) - paths(real)


def completion(engine: Engine, body: dict[str, Any], path: str = "/v1/completions") -> tuple[int, bytes]:
    # The first request for log probabilities compiles a kernel.
    answer = probe.ask(engine.port, path, body={"model": engine.model_name, **body}, limit_s=90.0)
    return answer.status, answer.body


def events(body: bytes) -> list[Any]:
    texts = [line[6:] for line in body.decode().split("\n\n") if line.startswith("data: ")]
    return [text if text == "[DONE]" else json.loads(text) for text in texts]


ASK = {"prompt": [5, 6, 7, 8], "max_tokens": 3, "temperature": 0, "ignore_eos": True}


def test_models(both: tuple[Engine, Engine]) -> None:
    assert_said_by_both(*[probe.ask(engine.port, "/v1/models").json() for engine in both])


@pytest.mark.parametrize("more", [{}, {"logprobs": 2}, {"return_token_ids": True}])
def test_completions(both: tuple[Engine, Engine], more: dict[str, Any]) -> None:
    fake, real = (json.loads(completion(engine, {**ASK, **more})[1]) for engine in both)
    # The names below these depend on the texts of the tokens.
    for answer in (fake, real):
        (answer["choices"][0]["logprobs"] or {}).pop("top_logprobs", None)
    assert_said_by_both(fake, real)
    assert fake["usage"]["completion_tokens"] == real["usage"]["completion_tokens"] == 3
    assert fake["choices"][0]["finish_reason"] == real["choices"][0]["finish_reason"] == "length"


def test_streams(both: tuple[Engine, Engine]) -> None:
    body = {**ASK, "stream": True, "stream_options": {"include_usage": True}}
    fake, real = (events(completion(engine, body)[1]) for engine in both)
    assert len(fake) == len(real) == 5 and fake[-1] == real[-1] == "[DONE]"
    for ours, theirs in zip(fake[:-1], real[:-1], strict=True):
        assert_said_by_both(ours, theirs)


def test_chat_streams(both: tuple[Engine, Engine]) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3, "ignore_eos": True, "stream": True}
    fake, real = (events(completion(engine, body, "/v1/chat/completions")[1]) for engine in both)
    assert_said_by_both(fake[0], real[0])
    assert_said_by_both(fake[1], real[1])


def test_prompt_logprobs(both: tuple[Engine, Engine]) -> None:
    body = {**ASK, "prompt_logprobs": 3}
    fake, real = (json.loads(completion(engine, body)[1])["choices"][0]["prompt_logprobs"] for engine in both)
    assert [entry is None for entry in fake] == [entry is None for entry in real]
    for entry in (*fake[1:], *real[1:]):
        assert len(entry) in (3, 4) and all(set(e) == {"logprob", "rank", "decoded_token"} for e in entry.values())
        assert all(key.isdigit() for key in entry)


@pytest.mark.parametrize(
    "body",
    [
        {"model": "another"},
        {"prompt": [999_999]},
        {"prompt": [5] * 600},
        {"prompt": []},
    ],
)
def test_refusals(both: tuple[Engine, Engine], body: dict[str, Any]) -> None:
    (status, ours), (theirs_status, theirs) = (completion(engine, {**ASK, **body}) for engine in both)
    assert status == theirs_status
    assert_said_by_both(json.loads(ours), json.loads(theirs))


def test_the_end_of_the_context(both: tuple[Engine, Engine]) -> None:
    body = {**ASK, "prompt": [5] * 500, "max_tokens": 100}
    counts = [json.loads(completion(engine, body)[1])["usage"]["completion_tokens"] for engine in both]
    assert counts[0] == counts[1] == 12


def test_counters(both: tuple[Engine, Engine]) -> None:
    names, labels = [], []
    for engine in both:
        text = probe.ask(engine.port, "/metrics").body.decode()
        names.append({line.split("{")[0] for line in text.splitlines() if line.startswith("vllm:")})
        labels.append(set(engine.metrics().cache_config_info))
    assert names[0] <= names[1], names[0] - names[1]
    assert labels[0] <= labels[1], labels[0] - labels[1]


def test_resolved_configuration(both: tuple[Engine, Engine]) -> None:
    assert_said_by_both(*[engine.resolved_config() for engine in both])


def test_what_the_boot_says(both: tuple[Engine, Engine]) -> None:
    fake, real = (engine.report for engine in both)
    assert fake.kv_tokens == pytest.approx(real.kv_tokens, rel=0.02)
    for name in ("max_model_len", "architecture", "vllm_version"):
        assert getattr(fake.facts, name) == getattr(real.facts, name)


def test_prefix_cache_reset(both: tuple[Engine, Engine]) -> None:
    assert [engine.reset_prefix_cache() for engine in both] == [True, True]
