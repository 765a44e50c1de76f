"""The controller and the rules, on samples of simulated loads: no clock, no server."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from autotune.load.phases import Controller, Progress, Rule
from autotune.load.records import COLUMNS, Outcome, RequestLog, Sample
from autotune.load.slo import Slo
from autotune.load.stopping import clearly_worse, decided, diverging
from autotune.load.types import LoadSpec
from autotune.workload.arrivals import Poisson

TICK_S = 0.05


def samples(
    rate: Callable[[float], float], *, noise: float = 0.1, growth: float = 0.0, fails: float = 0.0, until_s: float = 120
) -> Iterator[Sample]:
    """A load whose token rate is ``rate(t)``, with noise; one request ends per 20 tokens."""
    rng = np.random.default_rng(0)
    events, failed = 0.0, 0.0
    for tick in range(int(until_s / TICK_S)):
        at = 100 + tick * TICK_S
        here = max(0.0, rate(at - 100) * (1 + noise * rng.normal()))
        events += here * TICK_S
        failed += fails * here * TICK_S / 20
        flight = int(32 + growth * (at - 100) + rng.normal())
        ended = int(events / 20)
        begun = (ended + min(flight, 32)) * (events > 0)
        yield Sample(at, int(events), begun, ended + flight, ended, int(failed), flight, at - 0.1, 0.0, 0.0)


def run(controller: Controller, loads: Iterator[Sample]) -> float:
    """Seconds until the controller ends the load."""
    for sample in loads:
        if controller.on_tick(sample):
            return sample.at - 100
    raise AssertionError("the controller never ended the load")


def test_the_ramp_is_left_out() -> None:
    controller = Controller(LoadSpec.closed(32, min_s=5, max_s=10))
    run(controller, samples(lambda t: 1000 * min(1.0, t / 6)))
    assert controller.window_start is not None and controller.window_start - 100 > 5
    assert controller.settled


def test_a_server_that_falls_silent_ends_the_load_in_bounded_time() -> None:
    controller = Controller(LoadSpec.closed(32, min_s=5, max_s=600, precision=0, stall_timeout_s=60))
    ended_s = run(controller, samples(lambda t: 1000 if t < 9 else 0))
    assert 69 <= ended_s < 70
    assert controller.interrupted is not None and controller.interrupted.startswith("no token for 60 s with 3")


def test_a_steady_load_ends_when_its_rate_is_known() -> None:
    controller = Controller(LoadSpec.closed(32, min_s=5, max_s=60))
    assert run(controller, samples(lambda t: 1000.0)) < 12
    assert controller.stopped == "rate known within 2 %"


def test_a_noisy_load_is_measured_longer() -> None:
    controller = Controller(LoadSpec.closed(32, min_s=5, max_s=30))
    assert run(controller, samples(lambda t: 1000 + 500 * np.sin(t), noise=0.5)) > 25


def test_a_load_that_never_settles_is_told() -> None:
    controller = Controller(LoadSpec.closed(32, min_s=2, max_s=3, warmup_max_s=8))
    run(controller, samples(lambda t: 100 * np.exp(t / 3)))
    assert not controller.settled


def test_no_token_at_all_ends_the_load() -> None:
    controller = Controller(LoadSpec.closed(32, warmup_max_s=5, stall_timeout_s=7))
    assert run(controller, samples(lambda t: 0.0)) == pytest.approx(7, abs=0.5)
    assert controller.interrupted == "no token in 7 s"


def test_errors_beyond_the_budget_end_the_load() -> None:
    controller = Controller(LoadSpec.closed(32, min_s=20, max_s=60))
    assert run(controller, samples(lambda t: 1000.0, fails=0.2)) < 4
    assert (controller.interrupted or "").startswith("error budget spent")


def test_progress_is_told() -> None:
    seen: list[Progress] = []
    run(Controller(LoadSpec.closed(32, min_s=5, max_s=6), on_progress=seen.append), samples(lambda t: 1000.0))
    assert [p.phase for p in seen] == sorted((p.phase for p in seen), key=["warm-up", "window"].index)
    assert seen[-1].rate.value == pytest.approx(1000, rel=0.05)


@pytest.mark.parametrize("incumbent, stops", [(2000.0, True), (1000.0, False), (500.0, False)])
def test_a_clearly_worse_point_ends_early(incumbent: float, stops: bool) -> None:
    controller = Controller(LoadSpec.closed(32, min_s=20, max_s=20.5), rules=[clearly_worse(incumbent)])
    seconds = run(controller, samples(lambda t: 1000.0))
    assert (seconds < 8) is stops
    assert controller.stopped.startswith("clearly worse") is stops
    assert controller.by_rule is stops


@pytest.mark.parametrize("growth, stops", [(5.0, True), (0.0, False)])
def test_a_diverging_queue_ends_early(growth: float, stops: bool) -> None:
    rules: list[Rule] = [diverging()]
    controller = Controller(LoadSpec.open(Poisson(50.0), min_s=25, max_s=26, precision=0), rules=rules)
    seconds = run(controller, samples(lambda t: 1000.0, growth=growth))
    assert (seconds < 15) is stops
    assert ("diverging" in controller.stopped) is stops


@pytest.mark.parametrize("late_share, words", [(0.0, "every SLO met"), (0.3, "SLO missed: ttft_p95=100ms")])
def test_an_slo_ends_the_point_once_it_is_decided(late_share: float, words: str) -> None:
    controller = Controller(LoadSpec.open(Poisson(50.0), min_s=50, max_s=60), rules=[decided([Slo("ttft", 0.95, 100)])])
    controller.log = answered(late_share)
    assert run(controller, samples(lambda t: 1000.0)) < 10
    assert controller.stopped == words


def answered(late_share: float) -> RequestLog:
    """Requests due every 20 ms from second 100 on, a share of them late."""
    rng = np.random.default_rng(1)
    log = RequestLog()
    for i in range(5000):
        due = 100 + i / 50
        first = due + (0.3 if rng.random() < late_share else 0.03)
        row = dict.fromkeys(COLUMNS, 0) | {"due": due, "sent": due, "first": first, "last": first, "ended": first}
        log.add(tuple((row | {"output_tokens": 1, "events": 1, "outcome": Outcome.OK, "partial": False}).values()))
    return log
