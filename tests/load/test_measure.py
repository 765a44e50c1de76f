"""The whole client against a mock server whose service times are known."""

import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autotune.load.checks import check_counts
from autotune.load.measure import measure
from autotune.load.records import COLUMNS, RequestLog
from autotune.load.types import LoadSpec, Measurement, ServerCounters, Target
from autotune.workload.arrivals import Constant
from autotune.workload.lengths import Lengths
from autotune.workload.prompts import PlannedRequest, PromptStream
from autotune.workload.types import RequestShape, Workload

SMALL = Workload("small", (RequestShape("s", Lengths.fixed(32), Lengths.fixed(20)),))
# Requests of 0.4 s: on a machine that does other things as well, a client is late by milliseconds.
CALM: dict[str, float] = {"ttft_s": 0.02, "itl_s": 0.02}
QUICK: dict[str, Any] = {"min_s": 1.5, "max_s": 2.0, "warmup_min_s": 0.5, "precision": 0.2}


def run(target: Target, load: LoadSpec, workload: Workload = SMALL, **options: Any) -> Measurement:
    return measure(target, workload, load, seed=1, point_id="p", **{"vocab_size": 4096, **options})


def test_counts_equal_the_servers(mock: Callable[..., Any]) -> None:
    server = mock(**CALM)
    m = run(server.target, LoadSpec.closed(8, **QUICK))
    stats = server.stats()
    assert m.valid, m.problems
    assert m.counts.sent == stats["requests"]
    assert m.counts.failed == 0 and m.counts.cut == 8
    server_after = ServerCounters(stats["prompt_tokens"], stats["output_tokens"])
    assert check_counts(m, ServerCounters(0, 0), server_after) == ()
    assert abs(m.totals.output_tokens - stats["output_tokens"]) <= 16
    doubled = ServerCounters(stats["prompt_tokens"], 2 * stats["output_tokens"])
    assert "output tokens" in check_counts(m, ServerCounters(0, 0), doubled)[0]


def test_an_open_loop_keeps_its_rate(mock: Callable[..., Any]) -> None:
    server = mock(ttft_s=0.02, itl_s=0.005)
    m = run(server.target, LoadSpec.open(Constant(50.0), **QUICK))
    assert m.counts.cut <= 8
    assert m.client.intended == pytest.approx(50, rel=0.05)
    assert m.requests_per_s.value == pytest.approx(50, rel=0.1)
    assert m.output_tokens_per_s.value == pytest.approx(1000, rel=0.1)


def test_a_measurement_survives_json(mock: Callable[..., Any]) -> None:
    m = run(mock().target, LoadSpec.closed(4, **QUICK))
    assert Measurement.from_json(json.loads(json.dumps(m.to_json()))) == m


@pytest.mark.parametrize(
    "fail, words",
    [
        ("http", 'HTTP 503: {"error":{"message":"out of luck"'),
        ("error", "EngineCore encountered an issue"),
        ("abort", "finish_reason 'abort'"),
        ("short", "answer shorter than asked"),
        ("nousage", "without usage"),
        ("reset", "connection lost"),
    ],
)
def test_failures_are_named_and_spoil_the_point(mock: Callable[..., Any], fail: str, words: str) -> None:
    m = run(mock(fail=fail, fail_every=5).target, LoadSpec.closed(8, **QUICK))
    assert not m.valid
    assert words in " ".join((*m.problems, *(f.sample for f in m.failures), *(f.kind for f in m.failures)))


@pytest.mark.parametrize("making_s, valid", [(0.01, True), (0.3, False)])
def test_prompts_are_made_while_the_server_works(
    mock: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, making_s: float, valid: bool
) -> None:
    """10 ms a prompt would cost 2.5 % of a slot's time; what can't be made in time is still a saturated client."""
    make = PromptStream.next

    def slow(self: PromptStream) -> PlannedRequest:
        time.sleep(making_s)
        return make(self)

    monkeypatch.setattr(PromptStream, "next", slow)
    m = run(mock(**CALM).target, LoadSpec.closed(2, **QUICK))
    assert m.valid is valid, m.problems
    assert valid or "client saturated: load reached" in m.problems[0]


def test_a_hanging_request_times_out(mock: Callable[..., Any]) -> None:
    load = LoadSpec.closed(8, **{**QUICK, "max_s": 6.0, "min_s": 4.0}, stall_timeout_s=0.6)
    m = run(mock(fail="hang", fail_every=40).target, load)
    assert [f.kind for f in m.failures] == ["timed out"]
    assert "stalled" in m.failures[0].sample


def test_no_server_is_one_clear_problem() -> None:
    m = run(Target("http://127.0.0.1:9", "m"), LoadSpec.closed(2, **QUICK))
    assert m.problems[0].startswith("not measured: error budget spent")
    assert m.failures[0].kind == "could not connect"


def test_stop_ends_the_load_and_spoils_the_point(mock: Callable[..., Any]) -> None:
    m = run(mock().target, LoadSpec.closed(2, **QUICK), stop=lambda: "the engine died")
    assert m.problems[0] == "not measured: the engine died"


def test_prompts_of_two_points_differ_and_of_one_point_repeat(mock: Callable[..., Any]) -> None:
    server = mock(keep_prompts=True)
    run(server.target, LoadSpec.closed(4, **QUICK))
    first = [tuple(p[:4]) for p in server.stats()["prompts"]]
    assert len(set(first)) == len(first)
    measure(server.target, SMALL, LoadSpec.closed(4, **QUICK), seed=1, point_id="q", vocab_size=4096)
    both = [tuple(p[:4]) for p in server.stats()["prompts"]]
    assert len(set(both)) == len(both)


def test_chat_sends_messages(mock: Callable[..., Any]) -> None:
    server = mock(**CALM, keep_prompts=True)
    chat = Workload("chat", SMALL.shapes, kind="chat")
    m = run(server.target, LoadSpec.closed(2, **QUICK), chat, vocab_size=None)
    assert m.valid, m.problems
    assert json.loads(json.dumps(server.stats()["prompts"][0]))


@pytest.mark.parametrize(
    "load", [LoadSpec.closed(9, processes=2, **QUICK), LoadSpec.open(Constant(20.0), processes=2, **QUICK)]
)
def test_several_processes_act_as_one_client(mock: Callable[..., Any], load: LoadSpec) -> None:
    server = mock(**CALM, keep_prompts=True)
    m = run(server.target, load)
    stats = server.stats()
    assert not [p for p in m.problems if "saturated" not in p]
    assert m.counts.sent == stats["requests"]
    assert abs(m.totals.output_tokens - stats["output_tokens"]) <= 32
    assert len({tuple(p[:4]) for p in stats["prompts"]}) == stats["requests"]
    expected = 9 / 0.405 if load.concurrency else 20
    assert m.requests_per_s.value == pytest.approx(expected, rel=0.2)
    assert m.itl_ms.p50.value == pytest.approx(20, rel=0.2)


def test_very_long_prompts_are_sent_whole(mock: Callable[..., Any]) -> None:
    server = mock(ttft_s=0.05, itl_s=0.005)
    long = Workload("long", (RequestShape("s", Lengths.fixed(100_000), Lengths.fixed(10)),))
    m = run(server.target, LoadSpec.closed(4, **QUICK), long)
    stats = server.stats()
    assert m.counts.failed == 0 and m.counts.completed > 10
    assert stats["prompt_tokens"] >= 100_000 * m.counts.completed


def test_a_million_requests_fit_in_bounded_memory() -> None:
    log = RequestLog()
    rows = {name: np.zeros(100_000, dtype) for name, dtype in COLUMNS.items()}
    for _ in range(10):
        log.extend(rows)
    assert len(log) == 1_000_000
    assert sum(log[name].nbytes for name in COLUMNS) < 70e6
