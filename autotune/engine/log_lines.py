"""Turns the bytes of a vLLM log into lines that say who wrote them, when, how seriously, and what.

One log holds the output of several processes (API server, engine core, workers), each with its own
prefix, next to lines of uvicorn, argparse, tqdm, NCCL and the C++ runtime that have none. Container
tools put their own prefix in front of it all. The reader

    1. splits at line feeds, and a line again at carriage returns (progress bars) and in front of a
       second header (two processes that wrote at once); the parts keep the number of their line,
    2. drops terminal colours, replaces bytes that are not UTF-8, keeps both ends of lines over ``MAX_LINE`` bytes,
    3. takes off the prefixes of container tools and of torchrun, and the header of vLLM, uvicorn or glog.

Memory is bounded by ``MAX_LINE`` and the chunk size, whatever the log's size.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

MAX_LINE = 16_384
"""Bytes of one line that are read; its middle is skipped. vLLM's own longest lines are about 6 kB."""

_CHUNK = 1 << 20
_ANSI = re.compile(rb"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
# What container tools, cloud consoles and supervisors put in front of a line, in any order.
_STAMP = r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?"
_WRAPPER = re.compile(
    "(?:"
    + "|".join(
        (
            rf"{_STAMP}\s(?!- )",
            r"(?:DEFAULT|INFO|WARNING|ERROR) (?=\d{4}-\d\d-\d\dT)",
            r"[\w.-]{0,64}[ \t]*\|[ ]?",
            r"std(?:out|err) [FP] ",
            r"\[(?:[Ii]nfo|[Ww]arn(?:ing)?|[Ee]rror|[Dd]ebug|INFO|WARN|ERROR|stdout|stderr) *\] ",
            r"\[resource\.[^\]]*\] ",
            r"\(Process\) ",
            r"[\w.-]{1,64} >> ",
            r"[\w.-]{1,64} MODEL_LOG - ",
            r"[\w ]{1,20} STD(?:OUT|ERR): ",
            r"\([\w.-]+, pid=\d+\) (?=\()",
        )
    )
    + "){1,8}"
)
_RANK = re.compile(r"\[rank\d+\]:\s?")
_PROCESS = re.compile(r"\((?P<process>[A-Za-z][\w.-]*)\s(?:[^()]{0,80}\s)?pid=\d+[^()]{0,80}\) ?")
_VLLM = re.compile(
    r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<time>(?:\d{4}-)?\d\d-\d\d \d\d:\d\d(?::\d\d)?)(?:[.,]\d+)? "
    r"\[?(?P<source>[\w./-]+\.py):\d+\] ?"
)
_UVICORN = re.compile(r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL):(?:\s{1,8}(?=\S)|[a-z][\w.]*:)")
_PYTHON = re.compile(rf"{_STAMP} - (?:[\w.]+ - )?(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) - ")
_GLOG = re.compile(r"\[?(?P<level>[IWEF])(?P<time>\d{4} \d\d:\d\d:\d\d)\.\d+\s+(?:\d+\s+)?(?P<source>[\w./-]+):\d+\] ?")
_HEADER_LETTERS = frozenset("DIWECF[2")
_GLOG_LEVELS = {"I": "INFO", "W": "WARNING", "E": "ERROR", "F": "CRITICAL"}
# A header that starts in the middle of a line: the line before it was not finished when it was written.
_SECOND_HEADER = re.compile(
    r"(?<!^)(?=(?<!\) )(?:\([A-Za-z]\w*[^()]{0,40} pid=\d+\) )?"
    r"(?:INFO|WARNING|ERROR) (?:\d{4}-)?\d\d-\d\d \d\d:\d\d(?::\d\d)? )"
)


class LogLine(NamedTuple):
    """One line without its prefixes.

    ``number`` counts line feeds from 1. ``level`` is None for lines without a header, ``time`` the text
    ``MM-DD HH:MM:SS`` as printed, ``source`` the file that logged. (A tuple: a log has a million of them.)
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
    for part in _visible(raw) if b"\r" in raw else (raw,):
        if not part:
            continue
        line = _line(part.decode("utf-8", errors="replace").rstrip(), number)
        if ".py:" in line.text:
            first, *others = _SECOND_HEADER.split(line.text)
            if first.strip():
                yield line._replace(text=first.rstrip())
            yield from (_line(other, number) for other in others)
        else:
            yield line


def _visible(raw: bytes) -> list[bytes]:
    """First and last of the texts that overwrote each other, and what is no state of a progress bar."""
    first, *middle, last = raw.split(b"\r")
    return [first, *(part for part in middle if b".py:" in part or b"rror" in part), last]


def _line(text: str, number: int) -> LogLine:
    process: str | None = None
    at = 0
    if text[:1] not in ("(", ""):
        at = _skip(_WRAPPER, text, 0)
    at = _skip(_RANK, text, at)
    if text[at : at + 1] == "(" and (match := _PROCESS.match(text, at)):
        process, at = match["process"], match.end()
        at = _skip(_RANK, text, at)
    if text[at : at + 1] not in _HEADER_LETTERS:
        return LogLine(number, text[at:], None, process)
    if match := _VLLM.match(text, at):
        return LogLine(number, text[match.end() :], match["level"], process, _month_on(match["time"]), match["source"])
    if match := _UVICORN.match(text, at) or _PYTHON.match(text, at):
        return LogLine(number, text[match.end() :], match["level"], process)
    if match := _GLOG.match(text, at):
        time = f"{match['time'][:2]}-{match['time'][2:]}"
        return LogLine(number, text[match.end() :], _GLOG_LEVELS[match["level"]], process, time, match["source"])
    return LogLine(number, text[at:], None, process)


def _skip(prefix: re.Pattern[str], text: str, at: int) -> int:
    return match.end() if (match := prefix.match(text, at)) else at


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
        tail = _shortened(lines.pop())
        for raw in lines:
            yield number, _shortened(raw)
            number += 1
    if tail:
        yield number, tail


def _shortened(raw: bytes) -> bytes:
    """Both ends of a line that is too long: progress bars fill lines, and news come behind them."""
    return raw if len(raw) <= MAX_LINE else raw[: MAX_LINE // 2] + b"\r" + raw[-MAX_LINE // 2 :]


def _month_on(time: str) -> str:
    """``MM-DD HH:MM:SS`` of a time that may have a year."""
    return time[5:] if time[4:5] == "-" else time
