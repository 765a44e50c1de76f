"""Events and HTTP framing come out the same however the bytes are cut."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.load.http import ProtocolError, ResponseDecoder
from autotune.load.sse import EventScanner

TRICKY = [
    "",
    "a\n\nb",
    'data: {"error": 1}',
    '"usage":{"completion_tokens": 9}',
    "[DONE]",
    '"abort"',
    "\r\n\r\n",
    ": x",
]


def token(text: str, finish: str | None = None) -> bytes:
    body = {"id": "c", "choices": [{"index": 0, "text": text, "finish_reason": finish}], "usage": None}
    return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"


def usage(n: int) -> bytes:
    body = {"id": "c", "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": n}}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


ERROR = b'data: {"error": {"message": "EngineCore encountered an issue.", "code": 500}}\n\n'
DONE = b"data: [DONE]\n\n"
texts = st.lists(st.one_of(st.sampled_from(TRICKY), st.text(max_size=8)), min_size=1, max_size=12)
cuts = st.lists(st.integers(0, 5000), max_size=12)


def pieces(data: bytes, where: list[int]) -> list[bytes]:
    edges = sorted({min(at, len(data)) for at in where} | {0, len(data)})
    return [data[a:b] for a, b in pairwise(edges)]


def scan(stream: bytes, where: list[int]) -> tuple[int, EventScanner]:
    scanner = EventScanner()
    events = sum(scanner.feed(piece) for piece in pieces(stream, where))
    return events + scanner.finish(), scanner


@given(texts, cuts, st.sampled_from([b"\n", b"\r\n"]))
def test_every_token_event_counts_once(words: list[str], where: list[int], newline: bytes) -> None:
    stream = b"".join(map(token, words)) + usage(len(words)) + b": ping\n\n" + DONE
    events, scanner = scan(stream.replace(b"\n", newline), where)
    assert events == len(words)
    assert scanner.outcome.completion_tokens == len(words)
    assert scanner.outcome.prompt_tokens == 7
    assert scanner.outcome.error is None
    assert scanner.outcome.finish_reason is None


@given(texts, texts, cuts)
def test_an_error_in_the_middle_is_seen(before: list[str], after: list[str], where: list[int]) -> None:
    stream = b"".join(map(token, before)) + ERROR + b"".join(map(token, after)) + DONE
    events, scanner = scan(stream, where)
    assert events == len(before) + len(after)
    assert "EngineCore" in (scanner.outcome.error or "")
    assert scanner.outcome.completion_tokens is None


@given(texts, cuts)
def test_an_abort_is_seen(words: list[str], where: list[int]) -> None:
    stream = b"".join(map(token, words)) + token("", "abort") + usage(3) + DONE
    _, scanner = scan(stream, where)
    assert scanner.outcome.finish_reason == "abort"


def test_events_before_the_first_choice_do_not_count() -> None:
    empty = b'data: {"choices":[],"prompt_filter_results":[]}\n\n'
    events, _ = scan(empty + empty + token("a") + token("b"), [])
    assert events == 2


@given(st.lists(st.binary(min_size=1, max_size=60), max_size=8), cuts)
def test_chunked_bodies_survive_any_cut(bodies: list[bytes], where: list[int]) -> None:
    head = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    wire = head + b"".join(b"%X\r\n%s\r\n" % (len(b), b) for b in bodies) + b"0\r\nTrailer: x\r\n\r\n"
    decoder = ResponseDecoder()
    assert b"".join(decoder.feed(piece) for piece in pieces(wire, where)) == b"".join(bodies)
    assert decoder.complete and decoder.status == 200 and decoder.keep_alive


def test_a_chunked_body_survives_every_single_cut() -> None:
    bodies = [b"a", b"bc" * 20, b"\r\n"]
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    wire = head + b"".join(b"%x\r\n%s\r\n" % (len(b), b) for b in bodies) + b"0\r\n\r\n"
    for first in range(len(wire)):
        for second in range(first, len(wire)):
            decoder = ResponseDecoder()
            assert b"".join(decoder.feed(piece) for piece in pieces(wire, [first, second])) == b"".join(bodies)
            assert decoder.complete


@given(st.binary(max_size=60), cuts)
def test_bodies_with_a_length_survive_any_cut(body: bytes, where: list[int]) -> None:
    wire = b"HTTP/1.1 503 Busy\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body), body)
    decoder = ResponseDecoder()
    assert b"".join(decoder.feed(piece) for piece in pieces(wire, where)) == body
    assert decoder.complete and decoder.status == 503 and not decoder.keep_alive


def test_a_cut_off_response_is_a_protocol_error() -> None:
    decoder = ResponseDecoder()
    decoder.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab")
    with pytest.raises(ProtocolError, match="middle of a response"):
        decoder.end_of_stream()


@pytest.mark.parametrize("wire", [b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"])
def test_what_is_not_http_is_a_protocol_error(wire: bytes) -> None:
    with pytest.raises(ProtocolError):
        ResponseDecoder().feed(wire)


@pytest.mark.parametrize(
    "wire",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 2\xb2\xb2 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"5" * 2**17,
        b"HTTP/1.1 200 OK\r\nx: " + b"x" * 2**17,
    ],
)
def test_bad_numbers_and_endless_heads_are_protocol_errors(wire: bytes) -> None:
    with pytest.raises(ProtocolError):
        ResponseDecoder().feed(wire)


def test_any_number_of_interim_responses_may_come_first() -> None:
    decoder = ResponseDecoder()
    interim = b"HTTP/1.1 100 Continue\r\n\r\n" * 5000
    assert decoder.feed(interim + b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx") == b"x"


keys = st.sampled_from(
    [
        *("choices", "usage", "error", "text", "delta", "content", "finish_reason"),
        *("prompt_tokens", "completion_tokens", "prompt_tokens_details", "cached_tokens"),
    ]
)
scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.sampled_from(["", "abort", "NaN"]))
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner), max_leaves=9)


@given(st.lists(values, max_size=4), cuts)
def test_whatever_the_events_hold_the_counts_are_counts(bodies: list[object], where: list[int]) -> None:
    _, scanner = scan(b"".join(b"data: " + json.dumps(body).encode() + b"\n\n" for body in bodies), where)
    outcome = scanner.outcome
    for count in (outcome.prompt_tokens, outcome.completion_tokens, outcome.cached_tokens):
        assert count is None or (type(count) is int and 0 <= count < 2**31)
    assert outcome.malformed or all(isinstance(body, dict) for body in bodies)


@given(st.binary(max_size=200), cuts)
def test_any_bytes_may_be_scanned(stream: bytes, where: list[int]) -> None:
    scan(stream, where)
