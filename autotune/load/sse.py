"""Server-sent events, scanned instead of parsed.

A stream of an OpenAI-compatible server is a series of events ``data: {json}``, each ended by an empty line.
JSON text holds no raw line break, so counting ``\\n\\n`` counts events exactly, whatever the text says. Only
events that can matter are parsed: those up to the first one with a choice, and everything in a read from the
event on in which an unescaped ``"error"``, ``_tokens"`` (usage), ``"abort"``, a comment line or ``[DONE]``
appears. An unescaped quote can't be part of generated text, so none of these is missed; one that the text
makes up costs a parse, no more.

``EventScanner`` accepts any cut of the stream into reads and tells, per read, how many events with a choice
it brought. ``template`` is what the plain events of this stream start and end with, for a caller that wants
to recognise one without scanning it.
"""

from dataclasses import dataclass, field
from typing import Any

import orjson

_MARKS = (b'_tokens"', b'"error"', b'"abort"', b"\n:", b"\r", b"[DONE]")

Template = tuple[bytes, bytes]
"""What every plain token event of one stream starts and ends with."""


@dataclass(slots=True)
class StreamOutcome:
    """What a finished stream said besides its text."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    error: str | None = None
    finish_reason: str | None = None
    done: bool = False


@dataclass(slots=True)
class EventScanner:
    """Scans one stream. Feed reads to ``feed``; read ``outcome`` when the stream is over."""

    outcome: StreamOutcome = field(default_factory=StreamOutcome)
    template: Template | None = None
    _pending: bytes = b""

    def feed(self, data: bytes) -> int:
        """Number of events with a choice that ``data`` completes."""
        if self._pending or data[-2:] != b"\n\n":
            data = self._whole_events(data)
        plain = 0
        while self.template is None and data:
            first_end = data.find(b"\n\n") + 2
            plain, data = plain + self._parse(data[:first_end]), data[first_end:]
        cut = _first_mark(data)
        if cut < 0:
            return plain + data.count(b"\n\n")
        before = data.rfind(b"\n\n", 0, cut + 1)
        start = before + 2 if before >= 0 else 0
        return plain + data.count(b"\n\n", 0, start) + self._parse(data[start:])

    @property
    def at_boundary(self) -> bool:
        """Whether all that was fed so far were whole events."""
        return not self._pending

    def finish(self) -> int:
        """The stream is over: scan what came after the last empty line."""
        rest, self._pending = self._pending, b""
        return self._parse(rest) if rest.strip() else 0

    def _whole_events(self, data: bytes) -> bytes:
        data = self._pending + data
        if b"\r" in data:
            held = data[-1:] if data.endswith(b"\r") else b""
            data = data[: len(data) - len(held)].replace(b"\r\n", b"\n") + held
        cut = data.rfind(b"\n\n") + 2
        if cut == 1:
            self._pending = data
            return b""
        self._pending = data[cut:]
        return data[:cut]

    def _parse(self, data: bytes) -> int:
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n")
        return sum(self._event(event) for event in data.split(b"\n\n") if event)

    def _event(self, event: bytes) -> int:
        lines = [line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:")]
        payload = b"\n".join(lines)
        if payload == b"[DONE]":
            self.outcome.done = True
        if not payload or payload == b"[DONE]":
            return 0
        try:
            body = orjson.loads(payload)
        except orjson.JSONDecodeError:
            self.outcome.error = self.outcome.error or f"not JSON: {payload[:200].decode(errors='replace')}"
            return 0
        found = self._body(body) if isinstance(body, dict) else 0
        if found and self.template is None:
            self.template = _template(event)
        return found

    def _body(self, body: dict[str, Any]) -> int:
        if body.get("error") and not self.outcome.error:
            self.outcome.error = orjson.dumps(body["error"]).decode()[:500]
        self._usage(body.get("usage"))
        choices = body.get("choices")
        if not choices:
            return 0
        reason = choices[0].get("finish_reason")
        if reason in ("abort", "error"):
            self.outcome.finish_reason = reason
        return 1

    def _usage(self, usage: dict[str, Any] | None) -> None:
        if not usage:
            return
        self.outcome.prompt_tokens = usage.get("prompt_tokens")
        self.outcome.completion_tokens = usage.get("completion_tokens")
        details = usage.get("prompt_tokens_details") or {}
        self.outcome.cached_tokens = details.get("cached_tokens")


def _first_mark(data: bytes) -> int:
    """Where the first thing worth parsing is; -1 where there is none."""
    found = [at for at in map(data.find, _MARKS) if at >= 0]
    if data.startswith(b":"):
        return 0
    return min(found, default=-1)


def _template(event: bytes) -> Template:
    """The stream's plain event: all before the choice's content, all from its empty finish reason on.

    Where the event isn't of the usual form, a template that nothing matches.
    """
    start = event.find(b'"choices":[{')
    end = event.rfind(b'"finish_reason":null')
    if start < 0 or end < start or b"\n" in event:
        return b"\0", b"\0"
    return event[: start + len(b'"choices":[{')], event[end:] + b"\n\n"
