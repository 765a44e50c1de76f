"""The highest request rate at which every SLO holds, found on one running engine.

    1. A short closed loop says how many requests per second the server completes at all: the ceiling.
       (An incumbent's bracket, where one is given, replaces this guess.)
    2. From the guess the rate moves by ``STEP`` until a rate that holds and one that does not are known.
    3. The bracket is halved (geometrically) until its ends are ``tolerance`` apart.
    4. The highest rate that held is confirmed on fresh prompts over a longer window. Where it fails there, lower
       rates are confirmed in growing steps until one holds, and the gap that is left is halved: only a confirmed
       rate is an answer.

Every rate is a sequential test (``stopping``): it ends as soon as all SLOs are met, one is missed or the queue
diverges beyond doubt; a test still open at its longest window is decided by the shares seen, and one that is
"not measured" is tried up to three times. Arrivals are Poisson unless the workload has a process of its
own, which is then scaled.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from autotune.load.checks import SATURATED
from autotune.load.records import FAILURE_WORDS, Outcome
from autotune.load.slo import Slo
from autotune.load.types import Measurement, SloResult

STEP = 1.6
FIRST_SHARE = 0.6
MOST_PROBES = 16
FLOOR_SHARE = 0.02
ATTEMPTS = 3
MOST_CONFIRMATIONS = 8
LARGEST_FALL = 0.5


@dataclass(frozen=True, slots=True)
class Probe:
    """One rate, tested. ``holds`` is None where the point is not measured (the client's or server's fault)."""

    rate_per_s: float
    holds: bool | None
    reason: str
    measurement: Measurement
    confirming: bool = False


@dataclass(frozen=True, slots=True)
class Capacity:
    """``rate_per_s`` None: no rate meets the SLOs; ``nearest_miss`` is then the probe that came closest.

    ``bracket`` = (highest rate that held, lowest that did not); a side never seen is None.
    """

    rate_per_s: float | None
    bracket: tuple[float | None, float | None]
    probes: tuple[Probe, ...]
    problem: str = ""
    nearest_miss: Probe | None = None

    def __str__(self) -> str:
        if self.problem:
            return self.problem
        if self.rate_per_s is not None:
            return f"{self.rate_per_s:.3g} requests per second"
        return f"no rate meets the SLOs; nearest miss: {_describe(self.nearest_miss)}"


class RateTest(Protocol):
    """Applies a rate to the server: ``confirming`` asks for a longer window. Fresh prompts on every call."""

    def __call__(self, rate_per_s: float, *, confirming: bool) -> Measurement: ...


def find_capacity(
    test: RateTest,
    slos: Sequence[Slo],
    *,
    ceiling_per_s: float,
    bracket: tuple[float | None, float | None] = (None, None),
    tolerance: float = 0.05,
    on_probe: Callable[[Probe], None] | None = None,
) -> Capacity:
    """Search. ``ceiling_per_s`` is about what the server completes when saturated."""
    return _Search(test, tuple(slos), ceiling_per_s, tolerance, on_probe).run(bracket)


class _Search:
    def __init__(
        self,
        test: RateTest,
        slos: tuple[Slo, ...],
        ceiling_per_s: float,
        tolerance: float,
        on_probe: Callable[[Probe], None] | None,
    ) -> None:
        self._test, self._slos = test, slos
        self._ceiling, self._tolerance = ceiling_per_s, tolerance
        self._on_probe = on_probe
        self._probes: list[Probe] = []
        self._low: float | None = None
        self._high: float | None = None

    def run(self, bracket: tuple[float | None, float | None]) -> Capacity:
        first = self._first(bracket)
        rate: float | None = first
        while rate is not None and len(self._probes) < MOST_PROBES:
            probe = self._try(rate)
            if probe.holds is None:
                return self._result(None, problem=probe.reason)
            rate = self._next(bracket)
        return self._confirm()

    def _first(self, bracket: tuple[float | None, float | None]) -> float:
        return bracket[0] or (bracket[1] / STEP if bracket[1] else self._ceiling * FIRST_SHARE)

    def _next(self, bracket: tuple[float | None, float | None]) -> float | None:
        """The next rate to try; None where the bracket is narrow enough or the floor is reached."""
        if self._high is None:
            assert self._low is not None
            known = bracket[1]
            return known if known and known > self._low else self._low * STEP
        if self._low is None:
            lower = self._high / STEP**2
            return lower if lower > FLOOR_SHARE * self._ceiling else None
        if self._high <= self._low * (1 + self._tolerance):
            return None
        return float((self._low * self._high) ** 0.5)

    def _try(self, rate: float, *, confirming: bool = False) -> Probe:
        for _ in range(ATTEMPTS):
            measurement = self._test(rate, confirming=confirming)
            holds, reason = judge_rate(measurement)
            if holds is not None:
                break
        probe = Probe(rate, holds, reason, measurement, confirming)
        self._probes.append(probe)
        if holds:
            self._low = max(rate, self._low or 0.0)
        elif holds is False:
            self._high = min(rate, self._high or rate)
            self._low = None if self._low is not None and self._low >= rate else self._low
        if self._on_probe:
            self._on_probe(probe)
        return probe

    def _confirm(self) -> Capacity:
        rate, confirmed, fall = self._low, None, 2 * self._tolerance
        for _ in range(MOST_CONFIRMATIONS):
            if rate is None or rate < FLOOR_SHARE * self._ceiling:
                break
            probe = self._try(rate, confirming=True)
            if probe.holds is None:
                return self._result(None, problem=probe.reason)
            if probe.holds:
                confirmed = rate
            if confirmed is None:
                rate, fall = rate * (1 - fall), min(2 * fall, LARGEST_FALL)
            else:
                rate = self._between(confirmed)
        return self._result(confirmed)

    def _between(self, confirmed: float) -> float | None:
        """The middle of the gap above a confirmed rate; None where it is small enough."""
        if self._high is None or self._high <= confirmed * (1 + 4 * self._tolerance):
            return None
        return float((confirmed * self._high) ** 0.5)

    def _result(self, rate: float | None, problem: str = "") -> Capacity:
        missed = [probe for probe in self._probes if probe.holds is False]
        nearest = max(missed, key=_margin, default=None) if rate is None and not problem else None
        return Capacity(rate, (self._low, self._high), tuple(self._probes), problem, nearest)


def judge_rate(measurement: Measurement) -> tuple[bool | None, str]:
    """Whether the SLOs held, and why. None: the point says nothing about the server.

    A server that refuses, drops or never ends requests misses its SLOs; a client that can't keep up, or a
    server that is gone, is no answer. An SLO still open is decided by the share that was seen.
    """
    not_the_server = [p for p in measurement.problems if SATURATED in p]
    gone = any(failure.kind == FAILURE_WORDS[Outcome.CONNECT] for failure in measurement.failures)
    if not_the_server or gone:
        return None, (not_the_server or list(measurement.problems))[0]
    if measurement.stopped.startswith(("SLO missed", "diverging queue")):
        return False, measurement.stopped
    asked = any(result.n for result in measurement.slos)
    if measurement.problems and not asked and not measurement.failures:
        return None, measurement.problems[0]
    shares = "; ".join(f"{r.slo}: {r.share.value:.1%} in time" for r in measurement.slos)
    return all(_stands(result) for result in measurement.slos), shares


def _stands(result: SloResult) -> bool:
    if result.standing == "open":
        return _holds(result.slo, result.share.value)
    return result.standing == "met"


def _holds(slo: str, share: float) -> bool:
    return share >= Slo.parse(slo).share


def _margin(probe: Probe) -> float:
    """How near a probe came: its worst share of requests in time over the share asked."""
    return min((r.share.value / Slo.parse(r.slo).share for r in probe.measurement.slos), default=0.0)


def _describe(probe: Probe | None) -> str:
    if probe is None:
        return "none"
    worst = min(probe.measurement.slos, key=lambda r: r.share.value, default=None)
    at = f"{probe.rate_per_s:.3g} requests per second"
    if worst is None:
        return f"{at}: {probe.reason}"
    value = "never" if worst.value_ms is None else f"{worst.value_ms:.0f} ms"
    return f"{at} with {worst.share.value:.1%} of the requests in time for {worst.slo} (got {value})"
