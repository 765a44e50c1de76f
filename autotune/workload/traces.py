"""Workloads from files of requests: known traces, and the user's own.

    Azure LLM inference trace, CSV    TIMESTAMP,ContextTokens,GeneratedTokens
    Mooncake trace, JSONL             {"timestamp": ms, "input_length", "output_length", "hash_ids": [...]}
    own requests, JSONL               {"prompt": text, "max_tokens"} or {"messages": [...], "max_tokens"}, also
                                      inside "body" as in OpenAI's batch files; "timestamp" (seconds) optional

Files may be compressed (``.gz``). A trace gives lengths, times and, by equal leading block ids, shared prefixes;
its prompts are made fresh. A block of Mooncake's trace stands for 512 tokens.
"""

import csv
import gzip
import json
import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from autotune.errors import UsageError
from autotune.workload.arrivals import Arrival, Replay
from autotune.workload.files import MOST_TOKENS
from autotune.workload.types import TraceRequest, UserRequest, Workload

MOONCAKE_BLOCK = 512
DEFAULT_OUTPUT = 256
FEWEST_TIMES = 2
_AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def read_trace(path: Path) -> Workload:
    """The workload in a ``.csv`` or ``.jsonl`` file. Raises UsageError that names the line and the problem."""
    try:
        lines = _lines(path)
        kind = path.name.removesuffix(".gz").rpartition(".")[2]
        return _azure(path, lines) if kind == "csv" else _jsonl(path, lines)
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise UsageError(f"cannot read {path}: {error}") from None


def _lines(path: Path) -> list[str]:
    opener = gzip.open if path.name.endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8") as file:
        return [line for line in file.read().splitlines() if line.strip()]


def _azure(path: Path, lines: list[str]) -> Workload:
    rows = csv.DictReader(lines)
    if not set(_AZURE) <= set(rows.fieldnames or ()):
        raise UsageError(f"{path}:1: a trace in CSV has the columns {', '.join(_AZURE)}")
    trace, times = [], []
    for number, row in enumerate(rows, 2):
        try:
            times.append(datetime.fromisoformat(row["TIMESTAMP"][:26]).timestamp())
            trace.append(TraceRequest(_tokens(row["ContextTokens"]), _tokens(row["GeneratedTokens"])))
        except (ValueError, TypeError) as error:
            raise UsageError(f"{path}:{number}: {error}") from None
    return _workload(path, tuple(trace), times)


def _jsonl(path: Path, lines: list[str]) -> Workload:
    parsed = list(_objects(path, lines))
    if not parsed:
        raise UsageError(f"{path} holds no request")
    return _mooncake(path, parsed) if "input_length" in parsed[0] else _own(path, parsed)


def _objects(path: Path, lines: list[str]) -> Iterator[Mapping[str, Any]]:
    for number, line in enumerate(lines, 1):
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            raise UsageError(f"{path}:{number}: not JSON: {error}") from None
        if not isinstance(value, dict):
            raise UsageError(f"{path}:{number}: a line must hold one JSON object")
        yield value


def _mooncake(path: Path, parsed: list[Mapping[str, Any]]) -> Workload:
    trace, times = [], []
    for number, row in enumerate(parsed, 1):
        try:
            blocks = tuple(int(block) for block in row.get("hash_ids", ()))
            trace.append(TraceRequest(_tokens(row["input_length"]), _tokens(row["output_length"]), blocks))
            times.append(_seconds(row.get("timestamp", 0)) / 1000)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise UsageError(f"{path}:{number}: {error!r} in a trace line") from None
    return _workload(path, tuple(trace), times)


def _tokens(given: Any) -> int:
    """A length in a trace: traces do hold requests of 0 tokens, which count as 1. Raises ValueError."""
    if not 0 <= int(given) <= MOST_TOKENS:
        raise ValueError(f"a length of {given} tokens")
    return max(1, int(given))


def _seconds(given: Any) -> float:
    """A moment in a trace. Raises ValueError, TypeError."""
    if not math.isfinite(float(given)):
        raise ValueError(f"a timestamp of {given}")
    return float(given)


def _own_time(path: Path, number: int, given: Any) -> float:
    try:
        return _seconds(given)
    except (TypeError, ValueError):
        raise UsageError(f"{path}:{number}: timestamp is {given!r}; it must be a number of seconds") from None


def _workload(path: Path, trace: tuple[TraceRequest, ...], times: list[float]) -> Workload:
    if not trace:
        raise UsageError(f"{path} holds no request")
    return Workload(
        name=path.name.partition(".")[0],
        description=f"trace of {len(trace)} requests",
        trace=trace,
        block_tokens=MOONCAKE_BLOCK,
        arrival=_replay(times),
    )


def _replay(times: list[float]) -> Arrival | None:
    at_s = tuple(sorted(times))
    return Replay(at_s) if len(at_s) >= FEWEST_TIMES and at_s[-1] > at_s[0] else None


def _own(path: Path, parsed: list[Mapping[str, Any]]) -> Workload:
    bodies = [row.get("body", row) for row in parsed]
    requests = tuple(_own_request(path, number, body) for number, body in enumerate(bodies, 1))
    kinds = {isinstance(request.prompt, str) for request in requests}
    if len(kinds) > 1:
        raise UsageError(f"{path}: some lines have a prompt, others messages; use one kind per file")
    times = [_own_time(path, number, row["timestamp"]) for number, row in enumerate(parsed, 1) if "timestamp" in row]
    return Workload(
        name=path.name.partition(".")[0],
        description=f"{len(requests)} requests of your own",
        kind="completion" if kinds == {True} else "chat",
        requests=requests,
        ignore_eos=False,
        arrival=_replay(times) if len(times) == len(parsed) else None,
    )


def _own_request(path: Path, number: int, body: Any) -> UserRequest:
    if not isinstance(body, dict) or not ("prompt" in body or "messages" in body):
        raise UsageError(f'{path}:{number}: a request needs "prompt" or "messages"')
    tokens = body.get("max_completion_tokens") or body.get("max_tokens") or DEFAULT_OUTPUT
    if not isinstance(tokens, int) or not 1 <= tokens <= MOST_TOKENS:
        raise UsageError(
            f"{path}:{number}: max_tokens is {tokens!r}; it must be a whole number from 1 to {MOST_TOKENS}"
        )
    if "messages" in body:
        messages = body["messages"]
        if (
            not isinstance(messages, list)
            or not all(isinstance(m, dict) and "role" in m for m in messages)
            or not messages
        ):
            raise UsageError(f"{path}:{number}: messages must be a list of objects with a role")
        return UserRequest(tuple(messages), tokens)
    if not isinstance(body["prompt"], str):
        raise UsageError(f"{path}:{number}: prompt must be text")
    return UserRequest(body["prompt"], tokens)
