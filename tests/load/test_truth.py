"""Every reported figure against a server that wrote down what it really did, on the same clock."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autotune.load.measure import measure
from autotune.load.records import ClientResult, Outcome
from autotune.load.types import LoadSpec, Measurement
from autotune.workload.arrivals import Constant
from autotune.workload.lengths import Lengths
from autotune.workload.types import RequestShape, Workload

pytestmark = pytest.mark.slow
SHAPE = Workload("known", (RequestShape("s", Lengths.fixed(32), Lengths.fixed(40)),))


def close(measured: float, truth: float) -> bool:
    """Within 1 ms + 1 %."""
    return abs(measured - truth) <= 1 + 0.01 * truth


def run(server: Any, load: LoadSpec) -> tuple[Measurement, ClientResult, np.ndarray]:
    kept: list[ClientResult] = []
    m = measure(server.target, SHAPE, load, seed=1, point_id="p", vocab_size=4096, on_result=kept.append)
    return m, kept[0], np.array(server.stats()["served"])


def test_times_and_counts_equal_the_servers_own(mock: Callable[..., Any]) -> None:
    server = mock(ttft_s=0.05, itl_s=0.02)
    m, result, served = run(server, LoadSpec.closed(16, min_s=5, max_s=6, warmup_min_s=1, precision=0))
    whole = served[served[:, 3] == 40]
    received, first, last = whole[:, 0], whole[:, 1], whole[:, 2]
    inside = (last >= last.max() - 5) & (last <= last.max())
    assert close(m.ttft_ms.p50.value, 1e3 * np.median((first - received)[inside]))
    assert close(m.e2el_ms.p50.value, 1e3 * np.median((last - received)[inside]))
    assert close(m.tpot_ms.p50.value, 1e3 * np.median((last - first)[inside] / 39))
    assert close(m.itl_ms.p50.value, 20)
    assert m.output_tokens_per_s.value == pytest.approx(16 * 40 / np.mean((last - received)[inside]), rel=0.03)
    ok = result.log["outcome"] == Outcome.OK
    assert 0 <= len(served) - int(ok.sum()) <= 16
    assert (result.log["events"][ok] == result.log["output_tokens"][ok]).all()
    assert abs(m.totals.output_tokens - server.stats()["output_tokens"]) <= 32


def test_a_stall_shows_in_the_tail_as_it_was(mock: Callable[..., Any]) -> None:
    """Coordinated omission: a 2 s stall delays all that was due in it, by 2 s down to nothing."""
    rate, window_s, stall_s, ttft_s = 60.0, 8.0, 2.0, 0.02
    server = mock(ttft_s=ttft_s, itl_s=0.002, stall=[4.0, stall_s])
    load = LoadSpec.open(Constant(rate), min_s=window_s, max_s=window_s, warmup_min_s=0.5, warmup_max_s=1, precision=0)
    m, _, _ = run(server, load)
    due = np.arange(0, window_s, 1 / rate)
    truth = 1e3 * np.where((due + ttft_s > 2) & (due + ttft_s < 4), 4 - due, ttft_s)
    assert m.ttft_ms.n == pytest.approx(rate * window_s, abs=20)
    assert m.ttft_ms.p99 is not None and m.ttft_ms.p95 is not None and m.ttft_ms.p50 is not None
    assert m.ttft_ms.p99.value == pytest.approx(np.percentile(truth, 99), rel=0.05)
    assert m.ttft_ms.p95.value == pytest.approx(np.percentile(truth, 95), rel=0.1)
    assert m.ttft_ms.p50.value == pytest.approx(1e3 * ttft_s, rel=0.3)


def test_joined_tokens_are_counted_from_usage(mock: Callable[..., Any]) -> None:
    server = mock(ttft_s=0.02, itl_s=0.005, joined=4)
    m, _, served = run(server, LoadSpec.closed(8, min_s=2, max_s=3, warmup_min_s=0.5, precision=0))
    assert m.client.tokens_per_event == pytest.approx(4, rel=0.01)
    lifetime_s = np.mean((served[:, 2] - served[:, 0])[served[:, 3] == 40])
    assert m.output_tokens_per_s.value == pytest.approx(8 * 40 / lifetime_s, rel=0.05)


def test_a_rate_above_the_servers_is_told_as_unfinished_requests(mock: Callable[..., Any]) -> None:
    server = mock(ttft_s=0.02, itl_s=0.01, slots=4)
    load = LoadSpec.open(Constant(60.0), min_s=2, max_s=2, warmup_min_s=0.5, warmup_max_s=1, precision=0, drain_s=1)
    m, _, _ = run(server, load)
    assert not m.valid
    assert "without an end 1 s after the window" in m.problems[0]
