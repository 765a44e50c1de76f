"""Request bodies: everything but prompt and length is encoded once per point."""

from collections.abc import Mapping
from typing import Any

import orjson

from autotune.load.types import Target
from autotune.workload.prompts import PlannedRequest
from autotune.workload.types import Workload

PATHS: Mapping[str, str] = {"completion": "/v1/completions", "chat": "/v1/chat/completions"}


class BodyBuilder:
    """Turns planned requests into JSON bytes for one target and workload."""

    def __init__(self, target: Target, workload: Workload) -> None:
        fixed: dict[str, Any] = {
            "model": target.model,
            "stream": True,
            "stream_options": {"include_usage": True},
            **workload.sampling,
            **({"ignore_eos": True} if workload.ignore_eos else {}),
            **workload.extra,
        }
        field = "prompt" if workload.kind == "completion" else "messages"
        self._start = orjson.dumps(fixed)[:-1] + f',"{field}":'.encode()
        self._limit = b',"max_tokens":' if workload.kind == "completion" else b',"max_completion_tokens":'

    def build(self, request: PlannedRequest) -> bytes:
        """The body of one request."""
        prompt = orjson.dumps(request.prompt, option=orjson.OPT_SERIALIZE_NUMPY)
        return self._start + prompt + self._limit + str(request.output_tokens).encode() + b"}"
