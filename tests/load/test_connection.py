"""A connection counts the same whether a read holds one plain event, half of one or many."""

import asyncio
import time
from collections.abc import Iterable
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from autotune.load.client import Connection, Counters, Exchange, Pool
from autotune.load.endpoint import Endpoint
from autotune.load.records import Outcome
from autotune.load.types import Target

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"


class Wire(asyncio.Transport):
    """Takes what is written and gives nothing back."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False

    def writelines(self, list_of_data: Iterable[bytes]) -> None:
        self.sent = b"".join(list_of_data)

    def abort(self) -> None:
        self.closed = True


def chunk(payload: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(payload), payload)


def token(text: bytes, finish: bytes = b"null") -> bytes:
    return b'data: {"id":"c","choices":[{"index":0,"text":"%s","finish_reason":%s}]}\n\n' % (text, finish)


def usage(n: int) -> bytes:
    return b'data: {"id":"c","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":%d}}\n\n' % n


def receive(reads: list[bytes], expected: int) -> tuple[Exchange, Counters, Wire]:
    loop = asyncio.new_event_loop()
    counters, done = Counters(), []
    endpoint = Endpoint.of(Target("http://127.0.0.1:1", "m"), "/v1/completions")
    connection = Connection(Pool(endpoint, counters, done.append, loop))
    wire = Wire()
    connection.connection_made(wire)
    connection.start(Exchange(b"{}", time.perf_counter(), expected, 3, False))
    for read in reads:
        connection.data_received(read)
    loop.close()
    assert len(done) == 1
    return done[0], counters, wire


words = st.lists(
    st.sampled_from([b"a", b" token", b"\\n\\n", b'\\"error\\"', b"data: {", b"x" * 300]), min_size=1, max_size=15
)


@given(words, st.lists(st.integers(0, 6000), max_size=10))
def test_any_cut_gives_the_same_counts(texts: list[bytes], where: list[int]) -> None:
    n = len(texts)
    chunks = [*map(chunk, map(token, texts[:-1])), chunk(token(texts[-1], b'"length"')), chunk(usage(n))]
    whole = HEAD + b"".join(chunks) + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
    edges = sorted({min(at, len(whole)) for at in where} | {0, len(whole)})
    exchange, counters, wire = receive([whole[a:b] for a, b in pairwise(edges)], n)
    assert (exchange.outcome, exchange.detail) == (Outcome.OK, "")
    assert exchange.events == counters.events == n
    assert counters.first_tokens == 1
    assert len(counters.gaps.pending) == n - 1
    assert 0 < exchange.sent <= exchange.first <= exchange.last <= exchange.ended
    assert not wire.closed
    assert wire.sent.endswith(b"Content-Length: 2\r\n\r\n{}")


@given(words)
def test_one_event_per_read_takes_the_short_way_and_counts_the_same(texts: list[bytes]) -> None:
    n = len(texts)
    reads = [HEAD, *map(chunk, map(token, texts)), chunk(usage(n)), chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"]
    exchange, counters, _ = receive(reads, n)
    assert exchange.events == counters.events == n
    assert len(counters.gaps.pending) == n - 1


def test_an_error_after_plain_events_is_seen() -> None:
    error = chunk(b'data: {"error": {"message": "EngineCore encountered an issue.", "code": 500}}\n\n')
    reads = [HEAD, *[chunk(token(b"a"))] * 5, error, chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"]
    exchange, _, _ = receive(reads, 9)
    assert exchange.outcome == Outcome.STREAM_ERROR
    assert exchange.events == 5


def test_an_abort_after_plain_events_is_seen() -> None:
    reads = [HEAD, *[chunk(token(b"a"))] * 5, chunk(token(b"", b'"abort"')), chunk(usage(5)), b"0\r\n\r\n"]
    exchange, _, _ = receive(reads, 9)
    assert exchange.outcome == Outcome.ABORTED


def test_an_error_that_no_chunk_frame_holds_ends_the_request() -> None:
    exchange, _, wire = receive([HEAD, chunk(token(b"a")), b"no chunk at all\r\n"], 9)
    assert exchange.outcome == Outcome.RESET
    assert wire.closed


def test_a_plain_json_answer_is_not_a_stream() -> None:
    body = b'{"choices":[{"text":"a"}],"usage":{"completion_tokens":1}}'
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    exchange, _, _ = receive([head + body], 1)
    assert exchange.outcome == Outcome.NOT_A_STREAM


def test_a_plain_event_behind_no_chunk_size_ends_the_request() -> None:
    exchange, _, _ = receive([HEAD, *[chunk(token(b"a"))] * 3, b"zz\r\n" + token(b"a") + b"\r\n"], 9)
    assert exchange.outcome == Outcome.RESET
    assert "bad chunk size" in exchange.detail
