"""The shape that an event of a completion stream must have, once it is decoded from JSON.

Servers differ in what they leave out, so only what is there is held against it. Counts that pass fit into the
columns of ``records``.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

COUNT_MOST = 2**31 - 1
EXCERPT_BYTES = 80


class Fault(NamedTuple):
    """What is wrong with an event, and the key under which it is."""

    key: str
    what: str

    def __str__(self) -> str:
        return f"{self.key or 'an event'} is {self.what}"


def fault(body: Any) -> Fault | None:
    """What keeps a decoded event from being one of a completion stream; None where nothing does."""
    if not isinstance(body, dict):
        return Fault("", "no JSON object")
    usage = body.get("usage")
    if usage is not None and (wrong := _usage_fault(usage)):
        return wrong
    choices = body.get("choices")
    if choices is None and ("choices" not in body or usage or body.get("error")):
        return None
    if not isinstance(choices, list):
        return Fault("choices", "no list")
    for choice in choices:
        if wrong := _choice_fault(choice):
            return wrong
    return None


def excerpt(data: bytes, key: str = "") -> str:
    """The beginning of ``data``, or what it says from ``key`` on, quoted and safe to print."""
    at = max(0, data.find(f'"{key}"'.encode())) if key else 0
    return repr(data[at : at + EXCERPT_BYTES].decode(errors="replace"))


def _choice_fault(choice: Any) -> Fault | None:
    if not isinstance(choice, dict):
        return Fault("choices", "no list of objects")
    text, delta = choice.get("text"), choice.get("delta")
    if text is not None and not isinstance(text, str):
        return Fault("text", "no string")
    if delta is None:
        return None
    if not isinstance(delta, dict):
        return Fault("delta", "no object")
    content = delta.get("content")
    if content is not None and not isinstance(content, str | list):
        return Fault("content", "no string")
    return None


def _usage_fault(usage: Any) -> Fault | None:
    if not isinstance(usage, dict):
        return Fault("usage", "no object")
    details = usage.get("prompt_tokens_details")
    if details is not None and not isinstance(details, dict):
        return Fault("prompt_tokens_details", "no object")
    return (
        _count_fault(usage, "completion_tokens")
        or _count_fault(usage, "prompt_tokens")
        or (_count_fault(details, "cached_tokens") if details else None)
    )


def _count_fault(counts: Mapping[str, Any], key: str) -> Fault | None:
    count = counts.get(key)
    if count is None or (type(count) is int and 0 <= count <= COUNT_MOST):
        return None
    return Fault(key, "no count of tokens")
