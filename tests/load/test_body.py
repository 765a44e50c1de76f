"""Request bodies hold what the workload asks, in the words of each endpoint."""

import json

import numpy as np

from autotune.load.body import BodyBuilder
from autotune.load.types import Target
from autotune.workload.prompts import PlannedRequest
from autotune.workload.types import Workload

TARGET = Target("http://127.0.0.1:1", "m", api_key="secret")


def body(workload: Workload, prompt: object) -> dict[str, object]:
    return json.loads(BodyBuilder(TARGET, workload).build(PlannedRequest(0, prompt, 3, 7)))


def test_a_completion_of_token_ids() -> None:
    assert body(Workload("w"), np.array([5, 6, 7], dtype=np.int32)) == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.0,
        "ignore_eos": True,
        "prompt": [5, 6, 7],
        "max_tokens": 7,
    }


def test_chat_with_tools_and_a_schema() -> None:
    extra = {
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}},
        "chat_template_kwargs": {"enable_thinking": False},
    }
    messages = ({"role": "user", "content": 'a "quoted" ü'},)
    made = body(Workload("w", kind="chat", extra=extra, ignore_eos=False, sampling={"top_p": 0.9}), messages)
    assert made["messages"] == list(messages)
    assert made["max_completion_tokens"] == 7
    assert made["top_p"] == 0.9
    assert "ignore_eos" not in made and "temperature" not in made
    assert {name: made[name] for name in extra} == extra


def test_the_key_is_sent_but_never_shown() -> None:
    from autotune.load.endpoint import Endpoint

    endpoint = Endpoint.of(Target("https://host:8443/base/v1/", "m", api_key="secret"), "/v1/completions")
    assert b"POST /base/v1/completions HTTP/1.1\r\nHost: host:8443\r\nAuthorization: Bearer secret\r\n" in endpoint.head
    assert endpoint.tls is not None and endpoint.port == 8443
    assert "secret" not in repr(TARGET)
