"""A bench against servers that answer nonsense, or nothing, or without an end: it says so and ends."""

import logging
import os
import signal
import subprocess
import sys
import time

import pytest
from raw_server import (
    MODELS,
    STREAM,
    TOKEN,
    Say,
    again_and_again,
    chunk,
    events,
    nothing,
    raw_server,
    saying,
    whole,
)

from autotune.cli.main import run_command
from autotune.load.ask import ask
from autotune.load.measure import measure
from autotune.load.types import LoadSpec, Target
from autotune.workload.load import load_workload

QUICK = ("-c", "4", "--min", "1s", "--max", "2s", "--clients", "1", "--respect-eos")
ENDLESS = again_and_again(STREAM, chunk(events(TOKEN)), 0.01)


def told(capture: pytest.CaptureFixture[str], log: pytest.LogCaptureFixture) -> tuple[str, str]:
    """What was printed, on one line each; no traceback is among it, nor in what asyncio logs."""
    out, err = capture.readouterr()
    assert "Traceback" not in err
    assert not [record for record in log.records if record.levelno >= logging.ERROR]
    return " ".join(out.split()), err


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"data":[null]}', """no list of models in '{"data":[null]}'"""),
        (b'{"data":"x"}', """no list of models in '{"data":"x"}'"""),
        (b'{"data":[{"name":"x"}]}', "no list of models in"),
        (b'{"data":[{"id":3}]}', "no list of models in"),
        (b"[1, 2]", "no list of models in '[1, 2]'"),
        (b"null", "no list of models in 'null'"),
        (b"hello", "no list of models in 'hello'"),
        (b"<html>\x1b[31mlog in</html>" * 99, "no list of models in '<html>\\x1b[31mlog in"),
        (b"\xff\xfe\x00", "no list of models in"),
        (b'{"data":[]}', "lists no model"),
        (b'{"data":[{"id":"m","max_model_len":"big"}]}', "max_model_len 'big'"),
        (b'{"data":[{"id":"m","max_model_len":-4}]}', "max_model_len -4"),
        (b'{"data":[{"id":"m","max_model_len":true}]}', "max_model_len True"),
    ],
)
def test_no_list_of_models(
    body: bytes, words: str, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with raw_server({"GET /v1/models": saying(whole(body))}) as server:
        assert run_command(["bench", server.url]) == 3
    _, err = told(capsys, caplog)
    assert words in err
    assert len(err.splitlines()) == 2


def counted(count: bytes) -> bytes:
    return events(*[TOKEN] * 10, b'{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":%s}}' % count)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (events(b'{"choices": null}'), """choices is no list: '"choices": null}'"""),
        (events(b'{"choices":"a"}'), "choices is no list"),
        (events(b'{"choices":{"a":1}}'), "choices is no list"),
        (events(b'{"choices":["a"]}'), "choices is no list of objects"),
        (events(b"[1]"), "an event is no JSON object: '[1]'"),
        (events(b'{"usage":"a"}'), """usage is no object: '"usage":"a"}'"""),
        (events(b'{"choices":[{"text":5}]}'), """text is no string: '"text":5}]}'"""),
        (events(b'{"choices":[{"delta":"x"}]}'), "delta is no object"),
        (events(b'{"choices":[{"delta":{"content":5}}]}'), "content is no string"),
        (events(b'{"choices":[{"text":"\xff\xfe"}]}'), "not JSON"),
        (events(b'{"choices":[],"usage":{"prompt_tokens_details":"x"}}'), "prompt_tokens_details is no object"),
        (b"<html><body>log in</body></html>", "no event of a stream: '<html><body>log in"),
        (counted(b'"NaN"'), """completion_tokens is no count of tokens: '"completion_tokens":"NaN"}}'"""),
        (counted(b"10.5"), "completion_tokens is no count of tokens"),
        (counted(b"-3"), "completion_tokens is no count of tokens"),
        (counted(b"true"), "completion_tokens is no count of tokens"),
        (counted(b"99999999999999"), "completion_tokens is no count of tokens"),
        (counted(b"9" * 30), "completion_tokens is no count of tokens"),
        (counted(b"1e400"), "not JSON (number is infinity when parsed as double"),
    ],
)
def test_no_completion_stream(
    body: bytes, words: str, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    answer = whole(body + events(b"[DONE]"), b"text/event-stream")
    out = failed_requests({"POST": saying(answer)}, capsys, caplog)
    assert f"the server's answer is no completion stream: {words}" in out


@pytest.mark.parametrize(
    ("say", "words"),
    [
        (
            saying(whole(b"<html>log in</html>", b"text/html")),
            "content type 'text/html', no event of a stream: '<html>",
        ),
        (saying(whole(counted(b"null"), b"text/event-stream")), "stream without usage"),
        (again_and_again(STREAM, chunk(b"data: " + b"x" * 2**16), 0), "an event longer than 1 MiB"),
        (again_and_again(b"HTTP/1.1 200 OK\r\nx: ", b"x" * 2**16, 0), "a head longer than 65536 bytes"),
        (saying(b"HTTP/1.1 200 OK\r\ncontent-length: abc\r\n\r\n"), "bad content length 'abc'"),
        (saying(STREAM + b"-5\r\nabc\r\n"), "bad chunk size b'-5'"),
        (
            saying(STREAM.replace(b"transfer-encoding: chunked\r\n", b"") + events(TOKEN) + b'data: {"ch', close=True),
            "connection lost: the server closed the connection in the middle of an event",
        ),
    ],
)
def test_other_nonsense(
    say: Say, words: str, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert words in failed_requests({"POST": say}, capsys, caplog)


def failed_requests(says: dict[str, Say], capture: pytest.CaptureFixture[str], log: pytest.LogCaptureFixture) -> str:
    """What a bench prints that ends soon because every request fails."""
    with raw_server(says) as server:
        started = time.monotonic()
        assert run_command(["bench", server.url, *QUICK]) == 1
        assert time.monotonic() - started < 15
    out, err = told(capture, log)
    assert err == ""
    assert "not measured: error budget spent" in out
    return out


def test_metrics_that_are_none_do_not_matter(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    says = {"GET /metrics": saying(whole(b"vllm:x{ garbage\n")), "POST": saying(whole(events(b"[1]")))}
    failed_requests(says, capsys, caplog)


def test_tokens_without_an_end_do_not_keep_it() -> None:
    load = LoadSpec.closed(8, min_s=0.5, max_s=1.0, warmup_max_s=2.0)
    with raw_server({"POST": ENDLESS}) as server:
        started = time.monotonic()
        found = measure(Target(server.url, "m"), load_workload("demo"), load, seed=1, point_id="p", vocab_size=None)
        assert time.monotonic() - started < 15
    assert "not measured: no request ended inside the window" in found.problems


@pytest.mark.parametrize(
    ("say", "words"),
    [
        (nothing, "no whole answer within 1 s"),
        (again_and_again(b"HTTP/1.1 200 OK\r\nx: ", b"x", 0.2), "no whole answer within 1 s"),
        (again_and_again(b"HTTP/1.1 200 OK\r\n\r\n", b"x", 0.2), "no whole answer within 1 s"),
        (again_and_again(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 2**20, 0), "an answer longer than 16 MiB"),
        (ENDLESS, "a stream of events"),
        (saying(b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:9/\r\ncontent-length: 0\r\n\r\n"), "127.0.0.1:9"),
    ],
)
def test_a_single_request_ends_in_time(say: Say, words: str) -> None:
    with raw_server({"GET /v1/models": say}) as server:
        started = time.monotonic()
        with pytest.raises(OSError, match=words):
            ask(Target(server.url, "m"), "/v1/models", limit_s=1)
        assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    ("says", "clients"),
    [({"POST": ENDLESS}, "2"), ({"POST": nothing}, "1")],
    ids=["two client processes", "silent"],
)
def test_ctrl_c_ends_it_at_once(says: dict[str, Say], clients: str) -> None:
    with raw_server({"GET /v1/models": saying(whole(MODELS)), **says}) as server:
        command = [sys.executable, "-m", "autotune", "bench", server.url, "--clients", clients, "--vocab-size", "999"]
        # As at a terminal: a group of its own that the signal goes to, and not ignored as in a shell's background.
        running = subprocess.Popen(
            command,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        time.sleep(4)
        os.killpg(running.pid, signal.SIGINT)
        pressed = time.monotonic()
        _, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert time.monotonic() - pressed < 4
    assert "Traceback" not in err
