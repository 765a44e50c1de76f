"""What users send: a workload is request shapes, a way to ask, and a default arrival process.

Everything here is a plain value: it can be stored, compared and sent to another process.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from autotune.workload.arrivals import Arrival
from autotune.workload.lengths import Lengths

Kind = Literal["completion", "chat"]


@dataclass(frozen=True, slots=True)
class SharedPrefix:
    """The first ``tokens`` of a prompt are one of ``groups`` texts, all equally likely.

    Each point makes its own texts: what is shared is shared inside a point, never with an earlier one.
    """

    tokens: int
    groups: int = 1


@dataclass(frozen=True, slots=True)
class RequestShape:
    """One kind of request. ``input`` counts the whole prompt, shared prefix included."""

    name: str
    input: Lengths
    output: Lengths
    weight: float = 1.0
    prefix: SharedPrefix | None = None

    @property
    def max_tokens(self) -> int:
        """Longest prompt plus longest answer."""
        return self.input.high + self.output.high

    def scaled(self, factor: float) -> "RequestShape":
        """All lengths of the shape times ``factor``."""
        prefix = self.prefix and replace(self.prefix, tokens=int(self.prefix.tokens * factor))
        return replace(self, input=self.input.scaled(factor), output=self.output.scaled(factor), prefix=prefix)


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request of a trace. ``blocks`` are ids of the prompt's blocks: equal leading ids = shared prefix."""

    input_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class UserRequest:
    """One request of the user's own: its text or chat messages, and how long the answer may be."""

    prompt: str | tuple[Mapping[str, Any], ...]
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Workload:
    """What users send.

    Requests come from ``shapes`` (drawn by weight), or from ``trace`` or ``requests`` (in their order, over
    and over) where those are given. ``extra`` is merged into every request body: tools, response format, reasoning
    switches. ``ignore_eos`` makes every answer exactly as long as asked, which servers other than vLLM may
    not support. ``block_tokens`` is the size of a trace's blocks.
    """

    name: str
    shapes: tuple[RequestShape, ...] = ()
    description: str = ""
    kind: Kind = "completion"
    sampling: Mapping[str, float | int] = field(default_factory=lambda: {"temperature": 0.0})
    ignore_eos: bool = True
    extra: Mapping[str, Any] = field(default_factory=dict)
    arrival: Arrival | None = None
    trace: tuple[TraceRequest, ...] = ()
    block_tokens: int = 512
    requests: tuple[UserRequest, ...] = ()

    @property
    def max_len_needed(self) -> int:
        """Context in tokens that the longest request needs; 0 where only the server can count."""
        lengths = [shape.max_tokens for shape in self.shapes]
        lengths += [request.input_tokens + request.output_tokens for request in self.trace]
        return max(lengths, default=0)

    @property
    def mean_input_tokens(self) -> float:
        """Mean prompt length in tokens (0 for the user's own texts)."""
        if self.trace:
            return sum(request.input_tokens for request in self.trace) / len(self.trace)
        return self._weighted([shape.input.mean for shape in self.shapes])

    @property
    def mean_output_tokens(self) -> float:
        """Mean answer length in tokens."""
        asked = [request.output_tokens for request in self.trace]
        asked += [request.output_tokens for request in self.requests]
        if asked:
            return sum(asked) / len(asked)
        return self._weighted([shape.output.mean for shape in self.shapes])

    @property
    def intended_hit_rate(self) -> float | None:
        """Share of all prompt tokens that a perfect prefix cache would hold, once warm; None if unknown."""
        if self.requests:
            return None
        if self.trace:
            return _trace_hit_rate(self.trace, self.block_tokens)
        shared = self._weighted([float(min(s.prefix.tokens, s.input.mean)) if s.prefix else 0.0 for s in self.shapes])
        return shared / self.mean_input_tokens if shared else 0.0

    def _weighted(self, values: list[float]) -> float:
        total = sum(shape.weight for shape in self.shapes)
        if not total:
            return 0.0
        return sum(s.weight * value for s, value in zip(self.shapes, values, strict=True)) / total


def _trace_hit_rate(trace: tuple[TraceRequest, ...], block_tokens: int) -> float:
    seen: set[int] = set()
    hit_tokens = 0
    for request in trace:
        leading = 0
        while leading < len(request.blocks) and request.blocks[leading] in seen:
            leading += 1
        hit_tokens += min(leading * block_tokens, request.input_tokens)
        seen.update(request.blocks)
    return hit_tokens / sum(request.input_tokens for request in trace)


MARGIN_TOKENS = 8


def scaled(workload: Workload, model_max_len: int) -> tuple[Workload, str | None]:
    """Shorten a workload to a model's context; the message says by how much, None where it already fits."""
    needed = workload.max_len_needed
    room = model_max_len - MARGIN_TOKENS - (64 if workload.kind == "chat" else 0)
    if needed <= room:
        return workload, None
    factor = room / needed
    trace = tuple(
        replace(
            request,
            input_tokens=max(1, int(request.input_tokens * factor)),
            output_tokens=max(1, int(request.output_tokens * factor)),
        )
        for request in workload.trace
    )
    smaller = replace(
        workload,
        shapes=tuple(shape.scaled(factor) for shape in workload.shapes),
        trace=trace,
        block_tokens=max(1, int(workload.block_tokens * factor)),
    )
    return smaller, (
        f"workload {workload.name!r} needs {needed} tokens of context, the model has {model_max_len}: "
        f"all lengths are multiplied by {factor:.3g}"
    )
