"""Lines of a log: prefixes come off, parts of mangled lines come apart, size and encoding do not matter."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.engine.log_lines import MAX_LINE, LogLine, parse, read_lines

T = "11-30 12:00:00"


def only(raw: bytes) -> LogLine:
    (line,) = parse(raw, 7)
    return line


@pytest.mark.parametrize(
    ("raw", "level", "process", "time", "text"),
    [
        (b"(EngineCore pid=1) ERROR 11-30 12:00:00 [core.py:9] boo", "ERROR", "EngineCore", "11-30 12:00:00", "boo"),
        (b"(Worker_TP1 pid=22) INFO 11-30 12:00:00 [a/b.py:9] ok", "INFO", "Worker_TP1", "11-30 12:00:00", "ok"),
        (b"(VllmWorker rank=0 pid=3) ERROR 11-30 12:00:00 [x.py:1] boo", "ERROR", "VllmWorker", T, "boo"),
        (b"(RayWorkerWrapper pid=3, ip=10.0.0.2) boo", None, "RayWorkerWrapper", None, "boo"),
        (b"ERROR 08-22 10:00:00 llm_engine.py:174] boo", "ERROR", None, "08-22 10:00:00", "boo"),
        (b"ERROR 2025-08-22 10:00:00 [core.py:1] boo", "ERROR", None, "08-22 10:00:00", "boo"),
        (b"INFO:     Application startup complete.", "INFO", None, None, "Application startup complete."),
        (b"(APIServer pid=4) INFO:     up", "INFO", "APIServer", None, "up"),
        (b"[rank0]: ValueError: boo", None, None, None, "ValueError: boo"),
        (b"W1130 13:34:18.016000 99 torch/x.py:53] boo", "WARNING", None, "11-30 13:34:18", "boo"),
        (b"[rank0]:[E1130 13:34:18.016 Pg.cpp:1250] boo", "ERROR", None, "11-30 13:34:18", "boo"),
        (b"vllm-1  | (EngineCore pid=2) boo", None, "EngineCore", None, "boo"),
        (b"2026-11-30T12:00:00.1Z stdout F INFO 11-30 12:00:00 [a.py:1] boo", "INFO", None, "11-30 12:00:00", "boo"),
        (b"\x1b[1;36m(Worker pid=2)\x1b[0;0m ERROR 11-30 12:00:00 [c.py:9] boo", "ERROR", "Worker", T, "boo"),
        (b"vllm serve: error: boo", None, None, None, "vllm serve: error: boo"),
    ],
)  # fmt: skip
def test_prefixes_come_off(raw: bytes, level: str | None, process: str | None, time: str | None, text: str) -> None:
    line = only(raw)
    assert (line.level, line.process, line.time, line.text) == (level, process, time, text)


def test_two_processes_on_one_line_come_apart() -> None:
    raw = b"Loading: 50%|#|\rLoading: 100%|##| 2/2(EngineCore pid=7) ERROR 11-30 12:43:32 [core.py:1] boo"
    lines = list(parse(raw, 3))
    assert [(line.number, line.text) for line in lines] == [
        (3, "Loading: 50%|#|"), (3, "Loading: 100%|##| 2/2"), (3, "boo"),
    ]  # fmt: skip
    assert lines[2].process == "EngineCore"


def test_a_file_is_read_like_its_chunks(tmp_path) -> None:  # type: ignore[no-untyped-def]
    content = b"one\r\ntwo\n\nfour"
    path = tmp_path / "x.log"
    path.write_bytes(content)
    assert list(read_lines(path)) == list(read_lines([content]))
    assert [line.number for line in read_lines(path)] == [1, 2, 4]


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=6))
def test_chunk_borders_do_not_matter(content: bytes, cuts: list[int]) -> None:
    edges = sorted({0, len(content), *(cut for cut in cuts if cut < len(content))})
    chunks = [content[start:end] for start, end in pairwise(edges)]
    assert list(read_lines(chunks)) == list(read_lines([content]))


def test_an_endless_line_is_cut_but_its_end_survives() -> None:
    chunks = [b"x" * (1 << 20)] * 20 + [b"\r(EngineCore pid=2) ERROR 11-30 12:00:00 [c.py:9] boo\nnext"]
    lines = list(read_lines(chunks))
    assert all(len(line.text) <= MAX_LINE for line in lines)
    assert [line.text for line in lines][-2:] == ["boo", "next"]
