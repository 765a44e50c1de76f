"""Times and counts equal the server's own while thousands of tokens a second come one per read.

At a tenth of the client's capacity: the server that knows every time exactly is Python beside it, and late itself
above that.
"""

import json
import os
import urllib.request
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autotune.load.measure import measure
from autotune.load.records import ClientResult, Outcome
from autotune.load.types import Latency, LoadSpec, Measurement
from autotune.workload.lengths import Lengths
from autotune.workload.types import RequestShape, Workload

pytestmark = pytest.mark.slow
ANSWER, TTFT_S, ITL_S = 100, 0.05, 0.01
LOOKS = 3
SHARE = 0.1
KNOWN = Workload("known", (RequestShape("s", Lengths.fixed(32), Lengths.fixed(ANSWER)),))


def run(server: Any, streams: int, seconds: float, point: str) -> tuple[Measurement, ClientResult]:
    kept: list[ClientResult] = []
    load = LoadSpec.closed(streams, min_s=seconds, max_s=seconds, warmup_min_s=0.5, warmup_max_s=1.5, precision=0)
    m = measure(server.target, KNOWN, load, seed=1, point_id=point, vocab_size=4096, on_result=kept.append)
    return m, kept[0]


def served_by(server: Any) -> list[list[float]]:
    with urllib.request.urlopen(f"{server.target.base_url}/served", timeout=10) as answer:
        return json.load(answer)


def assert_equal(measured: Latency, truth_s: np.ndarray, name: str) -> None:
    """Mean and every percentile that is stated: within 1 ms + 1 %."""
    found = {q: measured.percentile(q) for q in (50, 90, 95, 99)}
    stated = {f"p{q}": (e.value, 1e3 * np.percentile(truth_s, q)) for q, e in found.items() if e is not None}
    assert len(stated) >= 3
    for which, (value, truth) in {"mean": (measured.mean, 1e3 * truth_s.mean()), **stated}.items():
        assert abs(value - truth) <= 1 + 0.01 * truth, f"{name} {which}: {value:.3f} ms, in truth {truth:.3f}"


@pytest.fixture
def free_cores() -> None:
    """A steady server can't be had where others use the cores."""
    cores = len(os.sched_getaffinity(0))
    if (load := os.getloadavg()[0]) > 2 * cores:
        pytest.skip(f"{load:.0f} processes want the {cores} cores")


@pytest.mark.usefixtures("free_cores")
def test_every_figure_is_the_truth_at_a_share_of_the_clients_capacity(exact: Callable[..., Any]) -> None:
    """One of three looks must agree in everything: what else the machine does for a moment is nobody's error."""
    server = exact(ttft_s=TTFT_S, itl_s=ITL_S, groups=10)
    few, _ = run(server, 60, 1.0, "capacity")
    capacity = few.output_tokens_per_s.value / few.client.cpu_share
    for look in range(LOOKS):
        try:
            agree(server, capacity, f"busy {look}")
            return
        except AssertionError:
            if look == LOOKS - 1:
                raise


def agree(server: Any, capacity: float, point: str) -> None:
    before = len(served_by(server))
    m, result = run(server, int(SHARE * capacity * ITL_S), 4.0, point)
    assert m.valid, m.problems
    assert m.output_tokens_per_s.value > 0.8 * SHARE * capacity

    end = result.samples[-1].at
    start = end - m.window_s
    served = [np.array(times) for times in served_by(server)[before:]]
    whole = [times for times in served if len(times) == ANSWER + 1]
    ended = [times for times in whole if start <= times[-1] < end]
    begun = [times for times in whole if start <= times[1] < end]
    assert_equal(m.ttft_ms, np.array([t[1] - t[0] for t in begun]), "TTFT")
    assert_equal(m.tpot_ms, np.array([(t[-1] - t[1]) / (ANSWER - 1) for t in ended]), "TPOT")
    assert_equal(m.e2el_ms, np.array([t[-1] - t[0] for t in ended]), "E2EL")
    assert_equal(m.itl_ms, np.concatenate([np.diff(t[1:])[(t[2:] >= start) & (t[2:] < end)] for t in served]), "ITL")

    ok = result.log["outcome"] == Outcome.OK
    unread = sum(t[-1] > end - 0.02 for t in served)
    assert m.counts.completed <= len(served) <= m.counts.completed + unread
    assert (result.log["events"][ok] == result.log["output_tokens"][ok]).all()
    assert not Counter(result.log["output_tokens"][ok].tolist()) - Counter(len(t) - 1 for t in served)
    in_window = sum(start <= t[-1] < end for t in served)
    assert m.counts.in_window == pytest.approx(in_window, abs=max(2, 0.002 * in_window))
    assert m.requests_per_s.value == pytest.approx(in_window / m.window_s, rel=0.01)
