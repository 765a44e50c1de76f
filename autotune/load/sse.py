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

What is parsed is also held against the shape that it must have: a stream that is none, or whose usage is no count,
is ``malformed``, and then nothing else that it says counts.
"""

from dataclasses import dataclass, field
from typing import Any

import orjson

from autotune.load.shape import excerpt, fault

EVENT_MOST = 2**20
_FIELDS = (b"data", b"event", b"id", b"retry", b":")
_MARKS = (b'_tokens"', b'"error"', b'"abort"', b"\n:", b"\r", b"[DONE]")

Template = tuple[bytes, bytes]
"""What every plain token event of one stream starts and ends with."""


@dataclass(slots=True)
class StreamOutcome:
    """What a stream said besides its text; ``malformed`` is why it is no completion stream."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    error: str | None = None
    malformed: str | None = None
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
        end = data.rfind(b"\n\n")
        cut = end + 2 if end >= 0 else 0
        self._pending = data[cut:]
        if len(self._pending) > EVENT_MOST:
            self._spoil(f"an event longer than {EVENT_MOST // 2**20} MiB: {excerpt(self._pending)}")
            self._pending = b""
        return data[:cut]

    def _parse(self, data: bytes) -> int:
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n")
        return sum(self._event(event) for event in data.split(b"\n\n") if event.strip())

    def _event(self, event: bytes) -> int:
        lines = event.split(b"\n")
        payload = b"\n".join([line[5:].strip() for line in lines if line.startswith(b"data:")])
        if payload == b"[DONE]":
            self.outcome.done = True
            return 0
        if not payload:
            if not any(line.startswith(_FIELDS) for line in lines):
                self._spoil(f"no event of a stream: {excerpt(event)}")
            return 0
        found = self._payload(payload)
        if found and self.template is None:
            self.template = _template(event)
        return found

    def _payload(self, payload: bytes) -> int:
        try:
            body = orjson.loads(payload)
        except orjson.JSONDecodeError as error:
            self._spoil(f"not JSON ({error.msg}): {excerpt(payload)}")
            return 0
        wrong = fault(body)
        if wrong:
            self._spoil(f"{wrong}: {excerpt(payload, wrong.key)}")
            return 0
        return self._body(body, payload)

    def _body(self, body: dict[str, Any], payload: bytes) -> int:
        if body.get("error") and not self.outcome.error:
            self.outcome.error = payload[:500].decode(errors="replace")
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

    def _spoil(self, why: str) -> None:
        self.outcome.malformed = self.outcome.malformed or why


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
