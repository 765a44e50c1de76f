"""What limits a point, and the checks on its counts."""

from dataclasses import replace

import pytest

from autotune.load.checks import check_prefix_hits, client_problems
from autotune.load.diagnosis import ServerState, diagnose
from autotune.load.types import (
    Client,
    Counts,
    Estimate,
    FullRun,
    Latency,
    LoadSpec,
    Measurement,
    PrefixHits,
    ServerCounters,
    Totals,
)
from autotune.workload.arrivals import Poisson

NONE = Latency(0, 0.0)
ONE = Estimate(1.0)
CLIENT = Client(10, 10, 0, 0.5, 1, 0.2, 1, 0)
POINT = Measurement(
    "w", "l", "p", 0, ONE, ONE, ONE, NONE, NONE, NONE, NONE, 1.0, 9.0, FullRun(9, 1, 1), Counts(9, 9, 0, 0, 0, 9),
    Totals(1, 1, 0, 0), CLIENT, PrefixHits(0.2),
)  # fmt: skip
IDLE = ServerState(running=10, waiting=0, kv_usage=0.2, max_num_seqs=64, max_num_batched_tokens=2048)


@pytest.mark.parametrize(
    "state, limit",
    [
        (IDLE, "under-loaded"),
        (replace(IDLE, running=64, waiting=20), "seqs"),
        (replace(IDLE, running=30, waiting=20, kv_usage=0.99), "kv"),
        (replace(IDLE, running=30, preemptions=4), "kv"),
        (replace(IDLE, running=30, waiting=20), "token budget"),
        (replace(IDLE, running=30, step_tokens=2000), "token budget"),
        (replace(IDLE, running=30, front_end_cpu=0.97), "front end"),
        (replace(IDLE, running=64, waiting=20, kv_usage=1.0), "kv"),
    ],
)
def test_the_limit_is_named(state: ServerState, limit: str) -> None:
    found = diagnose(POINT, state)
    assert found.limit == limit
    assert found.because and found.advice


def test_a_saturated_client_comes_first() -> None:
    problems = tuple(client_problems(replace(CLIENT, achieved=9), LoadSpec.closed(10)))
    found = diagnose(replace(POINT, problems=problems), replace(IDLE, preemptions=9))
    assert found.limit == "client" and "load reached 9 of 10" in found.because


@pytest.mark.parametrize(
    "client, slo_ms, saturated",
    [
        (CLIENT, None, False),
        (replace(CLIENT, lag_p99_ms=6), None, True),
        (replace(CLIENT, lag_p99_ms=6), 1000, False),
        (replace(CLIENT, achieved=9.89), None, True),
        (replace(CLIENT, cpu_share=0.99), None, True),
    ],
)
def test_a_client_that_falls_behind_is_not_measured(client: Client, slo_ms: float | None, saturated: bool) -> None:
    problems = client_problems(client, LoadSpec.open(Poisson(10.0)), slo_ms=slo_ms)
    assert bool(problems) is saturated


@pytest.mark.parametrize("hits, spoiled", [(200, False), (240, False), (300, True)])
def test_a_contaminated_prefix_cache_spoils_the_point(hits: int, spoiled: bool) -> None:
    before = ServerCounters(0, 0, prefix_queries=50, prefix_hits=50)
    after = ServerCounters(0, 0, prefix_queries=1050, prefix_hits=50 + hits)
    assert bool(check_prefix_hits(POINT, before, after)) is spoiled
    unknown = replace(POINT, prefix_hits=PrefixHits(None))
    assert check_prefix_hits(unknown, before, after) == ()
