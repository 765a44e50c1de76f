"""The rules that judge an arrival rate, on a server that is simulated exactly: slots, lifetimes, Poisson arrivals."""

import heapq
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from autotune.load.phases import Controller
from autotune.load.records import COLUMNS, Outcome, Sample
from autotune.load.slo import Slo
from autotune.load.stopping import decided, diverging
from autotune.load.types import LoadSpec
from autotune.workload.arrivals import Poisson

TICK_S = 0.05
LIFE_S = 2.0
PREFILL_S = 0.05
SLOTS = 20
CAPACITY = SLOTS / LIFE_S
START = 100.0
TTFT = (Slo("ttft", 0.95, 600.0),)
TPOT = (Slo("tpot", 0.95, 200.0),)


def queue(rate: float, seed: int, until_s: float = 120.0) -> Sequence[tuple[float, float, float]]:
    """(due, first token, end) of every request: whoever finds no free slot waits, first come first served."""
    rng = np.random.default_rng(seed)
    due = START + np.cumsum(rng.exponential(1 / rate, int(rate * until_s)))
    free = [START] * SLOTS
    rows = []
    for at in due:
        begin = max(float(at), heapq.heappop(free))
        heapq.heappush(free, begin + LIFE_S)
        rows.append((float(at), begin + PREFILL_S, begin + LIFE_S))
    return rows


def feed(controller: Controller, rows: Sequence[tuple[float, float, float]]) -> Iterator[Sample]:
    """Samples of the load at every tick; requests go to the controller's log as they end."""
    due, first, end = (np.array(column) for column in zip(*rows, strict=True))
    order, logged = np.argsort(end, kind="stable"), 0
    for tick in range(int((due[-1] - START) / TICK_S)):
        at = START + tick * TICK_S
        while logged < len(order) and end[order[logged]] <= at:
            i = order[logged]
            row = dict.fromkeys(COLUMNS, 0) | {"due": due[i], "sent": due[i], "first": first[i], "last": end[i]}
            controller.log.add(tuple((row | {"ended": end[i], "output_tokens": 40, "outcome": Outcome.OK}).values()))
            logged += 1
        sent, begun, ended = (int(np.searchsorted(np.sort(x), at, "right")) for x in (due, first, end))
        running = (due <= at) & (end > at)
        oldest = float(due[running].min()) if running.any() else float("inf")
        tokens = int(40 * np.clip((at - first) / (LIFE_S - PREFILL_S), 0, 1).sum())
        yield Sample(at, tokens, begun, sent, ended, 0, sent - ended, oldest, 0.0, 0.0)


def verdict(rate: float, slos: tuple[Slo, ...], seed: int, *, horizon_s: float, diverges: bool = True) -> str:
    """Why the load at this rate ended."""
    rules = [decided(slos, shortest_s=4.0, horizon_s=horizon_s), *([diverging()] if diverges else [])]
    load = LoadSpec.open(Poisson(rate), min_s=4.0, max_s=40.0, warmup_max_s=4.0, precision=0.0)
    controller = Controller(load, rules=rules)
    for sample in feed(controller, queue(rate, seed)):
        if controller.on_tick(sample):
            break
    return controller.stopped


@pytest.mark.parametrize("slos", [TTFT, TPOT])
@pytest.mark.parametrize("rate", [0.4 * CAPACITY, 0.7 * CAPACITY])
def test_chance_arrivals_are_no_queue(rate: float, slos: tuple[Slo, ...]) -> None:
    ended = [verdict(rate, slos, seed, horizon_s=40.0) for seed in range(15)]
    assert not [reason for reason in ended if reason.startswith(("diverging", "SLO missed"))]


@pytest.mark.parametrize("slos", [TTFT, TPOT])
@pytest.mark.parametrize("rate", [1.25 * CAPACITY, 2 * CAPACITY, 5 * CAPACITY])
def test_a_rate_that_the_server_cannot_keep_is_never_met(rate: float, slos: tuple[Slo, ...]) -> None:
    ended = [verdict(rate, slos, seed, horizon_s=40.0) for seed in range(10)]
    assert all(reason.startswith(("diverging", "SLO missed")) for reason in ended), ended


def test_latencies_that_nobody_waits_for_do_not_hide_a_queue() -> None:
    """A TPOT does not show who waits for a slot; only the horizon asks."""
    rate = 1.25 * CAPACITY
    assert verdict(rate, TPOT, 0, horizon_s=0.0, diverges=False) == "every SLO met"
    assert verdict(rate, TPOT, 0, horizon_s=40.0, diverges=False) == "longest window, 40 s"


def test_a_clear_answer_comes_before_the_longest_window() -> None:
    assert verdict(0.7 * CAPACITY, TTFT, 3, horizon_s=40.0) == "every SLO met"
