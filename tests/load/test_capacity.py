"""The capacity search on a queue that is simulated exactly, and the judgement of one rate."""

import numpy as np
import pytest
from blank_measurement import blank_measurement as measurement

from autotune.load.capacity import Capacity, find_capacity, judge_rate
from autotune.load.capacity_run import measure_capacity
from autotune.load.slo import Scored, Slo, judge
from autotune.load.stats import Z95
from autotune.load.types import (
    Estimate,
    Failure,
    LoadSpec,
    Measurement,
    SloResult,
    Target,
)
from autotune.workload.lengths import Lengths
from autotune.workload.types import RequestShape, Workload

LATE = SloResult("ttft_p95=20ms", "open", Estimate(0.5, 0.2, 0.97), None, 10)


class Queue:
    """A single server with exponential service times of mean ``service_s``: M/M/1.

    Sojourn times are exponential with mean 1 / (mu - lambda), so the rate at which a share s is below t is
    known: mu - ln(1/(1-s)) / t.
    """

    def __init__(self, service_s: float, slo: Slo, n: int = 4000) -> None:
        self.service_s, self.slo, self.n = service_s, slo, n
        self.rng = np.random.default_rng(0)
        self.rates: list[float] = []

    @property
    def truth(self) -> float:
        return 1 / self.service_s - np.log(1 / (1 - self.slo.share)) / (self.slo.limit_ms / 1e3)

    def __call__(self, rate_per_s: float, *, confirming: bool) -> Measurement:
        self.rates.append(rate_per_s)
        gaps = self.rng.exponential(1 / rate_per_s, self.n)
        service = self.rng.exponential(self.service_s, self.n)
        wait, waits = 0.0, np.empty(self.n)
        for i in range(self.n):
            wait = max(0.0, wait - gaps[i])
            wait += service[i]
            waits[i] = 1e3 * wait
        result = judge(self.slo, Scored(waits, waits, waits), z=Z95)
        return measurement(slos=(result,))


@pytest.mark.parametrize("limit_ms", [300, 1000])
def test_the_capacity_of_a_known_queue_is_found(limit_ms: float) -> None:
    queue = Queue(0.05, Slo("e2el", 0.95, limit_ms))
    found = find_capacity(queue, [queue.slo], ceiling_per_s=20.0)
    assert found.rate_per_s == pytest.approx(queue.truth, rel=0.15)
    assert len(queue.rates) <= 10


@pytest.mark.parametrize("truth", [4.0, 11.0, 18.0, 35.0])
def test_what_only_short_windows_let_pass_is_walked_down_to_a_rate_that_holds(truth: float) -> None:
    """Probes see no queue at any rate, as windows do that are shorter than the latencies; confirmations do."""

    def short_sighted(rate_per_s: float, *, confirming: bool) -> Measurement:
        holds = rate_per_s <= truth or (not confirming and rate_per_s < 43)
        share = Estimate(1.0, 0.99, 1.0) if holds else Estimate(0.2, 0.1, 0.3)
        return measurement(slos=(SloResult("e2el_p90=3000ms", "met" if holds else "missed", share, 1.0, 99),))

    found = find_capacity(short_sighted, [Slo("e2el", 0.9, 3000)], ceiling_per_s=40.0)
    assert found.rate_per_s is not None and 0.75 * truth <= found.rate_per_s <= truth
    confirmed = [p for p in found.probes if p.confirming]
    assert found.rate_per_s in [p.rate_per_s for p in confirmed if p.holds] and len(confirmed) <= 8


@pytest.mark.parametrize("limit, shortest_s", [("e2el_p90=3s", 9.0), ("ttft_p95=200ms", 4.0)])
def test_a_long_limit_stretches_the_windows(limit: str, shortest_s: float) -> None:
    loads: list[LoadSpec] = []

    def take(target: Target, workload: Workload, load: LoadSpec, /, **asked: object) -> Measurement:
        loads.append(load)
        slo = SloResult(
            limit, "met" if (load.arrival and load.arrival.rate_per_s < 3) else "missed", LATE.share, 1.0, 9
        )
        return measurement(requests_per_s=Estimate(4.0), slos=(slo,) if load.arrival else ())

    slos = [Slo.parse(limit)]
    shapes = (RequestShape("x", Lengths.fixed(8), Lengths.fixed(8)),)
    measure_capacity(
        Target("http://127.0.0.1:1", "m"), Workload("w", shapes), slos,
        seed=1, point_id="p", vocab_size=9, probe_s=(4.0, 12.0), confirm_s=15.0, take=take,
    )  # fmt: skip
    rates = [load for load in loads if load.arrival]
    assert {load.min_s for load in rates} == {shortest_s}
    assert min(load.max_s for load in rates) == 3 * shortest_s


def test_an_incumbents_bracket_saves_probes() -> None:
    queue = Queue(0.05, Slo("e2el", 0.95, 300), n=30_000)
    truth = queue.truth
    found = find_capacity(queue, [queue.slo], ceiling_per_s=20.0, bracket=(truth * 0.97, truth * 1.1))
    assert queue.rates[0] == pytest.approx(truth * 0.97)
    assert found.rate_per_s == pytest.approx(truth, rel=0.15)
    assert len(queue.rates) <= 6


def test_a_hopeless_slo_is_said_plainly_with_the_nearest_miss() -> None:
    queue = Queue(0.05, Slo("e2el", 0.95, 20))
    found = find_capacity(queue, [queue.slo], ceiling_per_s=20.0)
    assert found.rate_per_s is None and not found.problem
    assert str(found).startswith("no rate meets the SLOs; nearest miss: ")
    assert found.nearest_miss is not None and found.nearest_miss.rate_per_s < 2
    assert len(queue.rates) <= 8


def test_a_saturated_client_is_no_answer() -> None:
    calls = []

    def saturated(rate_per_s: float, *, confirming: bool) -> Measurement:
        calls.append(rate_per_s)
        return measurement(problems=("not measured: client saturated: x",))

    found = find_capacity(saturated, [Slo("ttft", 0.95, 20)], ceiling_per_s=20.0)
    assert found == Capacity(None, (None, None), found.probes, "not measured: client saturated: x")
    assert len(calls) == 3


@pytest.mark.parametrize(
    "changes, holds",
    [
        ({"stopped": "diverging queue: +3 requests in flight per second", "problems": ("not measured: y",)}, False),
        (
            {
                "problems": ("not measured: 9 of 10 requests failed",),
                "failures": (Failure("timed out", 9),),
                "slos": (LATE,),
            },
            False,
        ),
        ({"problems": ("not measured: z",), "failures": (Failure("could not connect", 9),)}, None),
        ({"problems": ("not measured: the engine died",)}, None),
    ],
)
def test_what_an_ended_point_says_about_its_rate(changes: dict[str, object], holds: bool | None) -> None:
    assert judge_rate(measurement(**changes))[0] is holds


def test_refused_requests_miss_their_slo() -> None:
    slo = Slo("ttft", 0.95, 100)
    late = np.array([10.0, np.inf, 10.0, 10.0, np.inf] * 20)
    result = judge(slo, Scored(late, late, late))
    assert (result.standing, result.value_ms) == ("missed", None)
    assert judge_rate(measurement(slos=(result,)))[0] is False


def test_slos_are_read_and_printed() -> None:
    assert Slo.parse("TTFT_p95=500ms") == Slo("ttft", 0.95, 500)
    assert Slo.parse("e2el_p99.9<=2s") == Slo("e2el", 0.999, 2000)
    assert str(Slo.parse("tpot_p50 = 50 ms")) == "tpot_p50=50ms"
    for text in ("e2el_p99.999=86400000ms", "ttft_p7=0.001ms", "ttft_p95=1000.457ms", "e2el_p95=2000000ms"):
        assert str(Slo.parse(text)) == text and Slo.parse(str(Slo.parse(text))) == Slo.parse(text)
    with pytest.raises(Exception, match=r"like ttft_p95=500ms"):
        Slo.parse("ttft=5")


def test_an_slo_needs_more_than_a_few_requests() -> None:
    few = np.full(19, 1.0)
    assert judge(Slo("ttft", 0.5, 100), Scored(few, few, few)).standing == "open"
    many = np.full(200, 1.0)
    assert judge(Slo("ttft", 0.95, 100), Scored(many, many, many)).standing == "met"
