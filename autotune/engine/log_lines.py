"""Turns the bytes of a vLLM log into lines that say who wrote them, when, how seriously, and what.

One log holds the output of several processes (API server, engine core, workers), each with its own
prefix, next to lines of uvicorn, argparse, tqdm, NCCL and the C++ runtime that have none. Container
tools put their own prefix in front of it all. The reader

    1. splits at line feeds, and a line again at carriage returns (progress bars) and in front of a
       second header (two processes that wrote at once); the parts keep the number of their line,
    2. drops terminal colours, replaces bytes that are not UTF-8, cuts a line after ``MAX_LINE`` bytes,
    3. takes off the prefixes of container tools and of torchrun, and the header of vLLM, uvicorn or glog.

Memory is bounded by ``MAX_LINE`` and the chunk size, whatever the log's size.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

MAX_LINE = 16_384
"""Bytes of one line that are read; the rest of it is skipped. vLLM's own longest lines are about 6 kB."""

_CHUNK = 1 << 20
_ANSI = re.compile(rb"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
# Container tools: `name  | line`, and an RFC 3339 time, optionally with docker's or CRI's stream words.
_WRAPPER = re.compile(
    r"(?:[\w.-]{1,64}\s+\|\s(?=\S))?"
    r"(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[\d.,]*(?:Z|[+-]\d\d:?\d\d)\s(?:std(?:out|err) [FP] )?)?"
)
_RANK = re.compile(r"\[rank\d+\]:\s?")
_PROCESS = re.compile(r"\((?P<process>[A-Za-z][\w.-]*)\s(?:[^()]{0,80}\s)?pid=\d+[^()]{0,80}\) ?")
_VLLM = re.compile(
    r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<time>(?:\d{4}-)?\d\d-\d\d \d\d:\d\d:\d\d)(?:[.,]\d+)? "
    r"\[?(?P<source>[\w./-]+\.py):\d+\] ?"
)
_UVICORN = re.compile(r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL):\s{1,8}(?=\S)")
_GLOG = re.compile(r"\[?(?P<level>[IWEF])(?P<time>\d{4} \d\d:\d\d:\d\d)\.\d+\s+(?:\d+\s+)?(?P<source>[\w./-]+):\d+\] ?")
_GLOG_LEVELS = {"I": "INFO", "W": "WARNING", "E": "ERROR", "F": "CRITICAL"}
# A header that starts in the middle of a line: the line before it was not finished when it was written.
_SECOND_HEADER = re.compile(
    r"(?<=\S)(?=(?:\([A-Za-z]\w*[^()]{0,40} pid=\d+\) )?(?:INFO|WARNING|ERROR) \d\d-\d\d \d\d:\d\d:\d\d )"
)


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line without its prefixes.

    ``number`` counts line feeds from 1. ``level`` is None for lines without a header, ``time`` the text
    ``MM-DD HH:MM:SS`` as printed, ``source`` the file that logged.
    """

    number: int
    text: str
    level: str | None = None
    process: str | None = None
    time: str | None = None
    source: str | None = None


def read_lines(log: Path | Iterable[bytes]) -> Iterator[LogLine]:
    """All lines of a log file, or of chunks of bytes that need not end at line ends."""
    for number, raw in _physical_lines(_chunks(log)):
        yield from parse(raw, number)


def parse(raw: bytes, number: int) -> Iterator[LogLine]:
    """The log lines inside one physical line: usually one, more where processes wrote into each other's."""
    if b"\x1b" in raw:
        raw = _ANSI.sub(b"", raw)
    for part in raw.split(b"\r") if b"\r" in raw else (raw,):
        if not part:
            continue
        line = _line(part.decode("utf-8", errors="replace"), number)
        if ".py:" in line.text:
            first, *others = _SECOND_HEADER.split(line.text)
            yield replace(line, text=first)
            yield from (_line(other, number) for other in others)
        else:
            yield line


def _line(text: str, number: int) -> LogLine:
    process: str | None = None
    at = 0
    if text[:1] != "(":
        at = _skip(_WRAPPER, text, 0)
        at = _skip(_RANK, text, at)
    if match := _PROCESS.match(text, at):
        process, at = match["process"], match.end()
        at = _skip(_RANK, text, at)
    if match := _VLLM.match(text, at):
        return LogLine(number, text[match.end() :], match["level"], process, match["time"][-14:], match["source"])
    if match := _UVICORN.match(text, at):
        return LogLine(number, text[match.end() :], match["level"], process)
    if match := _GLOG.match(text, at):
        time = f"{match['time'][:2]}-{match['time'][2:]}"
        return LogLine(number, text[match.end() :], _GLOG_LEVELS[match["level"]], process, time, match["source"])
    return LogLine(number, text[at:], None, process)


def _skip(prefix: re.Pattern[str], text: str, at: int) -> int:
    match = prefix.match(text, at)
    return match.end() if match else at


def _chunks(log: Path | Iterable[bytes]) -> Iterator[bytes]:
    if not isinstance(log, Path):
        yield from log
        return
    with log.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk


def _physical_lines(chunks: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    number = 1
    tail = b""
    for chunk in chunks:
        lines = (tail + chunk).split(b"\n")
        tail = lines.pop()[:MAX_LINE]
        for raw in lines:
            yield number, raw[:MAX_LINE]
            number += 1
    if tail:
        yield number, tail
