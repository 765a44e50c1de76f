"""What a study wants to win: direction, unit, load, figure, and what counts as infeasible.

    throughput   output tokens per second of a closed loop                            maximise
    cost         price per hour over the tokens of that hour, $ per million           minimise
    latency      mean end-to-end latency at a given request rate (open loop)          minimise
    goodput      highest request rate at which every SLO holds                        maximise
    pareto       geometric mean of the throughputs of three closed loops in one boot  maximise

The mean, not a percentile, is the figure of ``latency``: it holds queueing, TTFT and every token, and is known four
times sooner than a p95; who cares for the tail adds an SLO. In a closed loop of c requests throughput and latency
are one thing (Little: c = requests per second x E2EL), so that at each load of ``pareto`` the higher throughput is
the lower latency too; its aspects are the three loads, ``interactive``, ``balanced`` and ``throughput``, and the study
ends with one configuration for each.

SLOs are constraints of every objective. What is picked for a race has ``SLO_MARGIN`` of each limit to spare
(goodput: is searched with limits that much lower), for a configuration that just meets an SLO once misses it the
next time; a race's visit must meet the limit itself. To add an objective, add a class and its line in
``OBJECTIVES``.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

from autotune.errors import UsageError
from autotune.load.capacity import Capacity, Probe
from autotune.load.capacity_run import SHORTEST_WARMUP_S
from autotune.load.checks import SATURATED
from autotune.load.slo import Slo
from autotune.load.stopping import diverging, mean_known
from autotune.load.types import LoadSpec
from autotune.search.noise import PRIOR_SIGMA
from autotune.search.roofline import Physics, RooflinePrior
from autotune.search.types import Direction
from autotune.tuner.loader import Loaded
from autotune.tuner.objective import (
    SLO_MARGIN,
    Bench,
    Effort,
    Objective,
    Reading,
    closed,
    exact,
    output_rate,
    reading,
    unless_worse,
    violations,
)
from autotune.workload.arrivals import Arrival, Poisson

_TITLE = re.compile(r"(?P<name>\w+)(?:/(?P<aspect>\w+))?(?: at (?P<amount>\S+))?(?: under (?P<slos>.+))?")
UNFINISHED = "without an end"
DIVERGING = "diverging queue"
IDLE = "under-loaded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput(Objective):
    """Output tokens per second with ``concurrency`` requests in flight."""

    name: ClassVar[str] = "throughput"
    concurrency: int

    @property
    def load(self) -> str:
        return f"{self.concurrency} in flight"

    def take(self, bench: Bench, effort: Effort) -> Reading:
        best = effort.beat.get("")
        loaded = bench.measure(
            closed(self.concurrency, effort, self.processes), rules=unless_worse(best, effort), slos=self.slos
        )
        return reading(loaded, *output_rate(loaded.measurement))

    def prior(self, physics: Physics) -> RooflinePrior | None:
        return RooflinePrior(physics)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost(Throughput):
    """Dollars per million output tokens of a machine that costs ``price_per_hour``, kept busy."""

    name: ClassVar[str] = "cost"
    price_per_hour: float
    direction: ClassVar[Direction] = "minimize"
    unit: ClassVar[str] = "$/Mtok"

    @property
    def _dollars_per_mtok_s(self) -> float:
        return self.price_per_hour / 3600 * 1e6

    def take(self, bench: Bench, effort: Effort) -> Reading:
        beat = {name: self._dollars_per_mtok_s / cost for name, cost in effort.beat.items()}
        read = Throughput.take(self, bench, replace(effort, beat=beat))
        if read.value is None:
            return read
        cost = self._dollars_per_mtok_s / read.value
        error = None if read.value_se is None else cost * read.value_se / read.value
        return replace(read, value=cost, value_se=error)

    def prior(self, physics: Physics) -> RooflinePrior | None:
        return RooflinePrior(physics, "cost", scale=self._dollars_per_mtok_s)

    @property
    def options(self) -> Mapping[str, float]:
        return {"price_per_hour": self.price_per_hour}


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency(Objective):
    """Mean E2EL in milliseconds while requests arrive as ``arrival`` says; who cannot keep the rate is infeasible."""

    name: ClassVar[str] = "latency"
    arrival: Arrival
    direction: ClassVar[Direction] = "minimize"
    unit: ClassVar[str] = "ms"

    @property
    def load(self) -> str:
        return str(self.arrival)

    def take(self, bench: Bench, effort: Effort) -> Reading:
        load = LoadSpec.open(
            self.arrival,
            min_s=effort.shortest_s,
            max_s=2 * effort.longest_s,
            warmup_max_s=max(SHORTEST_WARMUP_S, 2 * effort.shortest_s),
            precision=0.0,
            processes=self.processes,
            lag_limit_ms=effort.lag_limit_ms,
        )
        shortest_s = max(3.0, effort.shortest_s)
        known = mean_known(effort.precision, shortest_s=shortest_s)
        loaded = bench.measure(load, rules=(diverging(shortest_s=shortest_s), known), slos=self.slos)
        if loaded.measurement.stopped.startswith(DIVERGING) and (loaded.limit is None or loaded.limit.limit == IDLE):
            # Chance arrivals can look like a growing queue for seconds; where the server lets nobody wait it is none.
            loaded = bench.measure(load, tag="again", rules=(known,), slos=self.slos)
        found = loaded.measurement
        rate = self.arrival.rate_per_s
        saturated = any(SATURATED in p for p in found.problems)
        diverges = found.stopped.startswith(DIVERGING) or any(UNFINISHED in p for p in found.problems)
        if diverges and not saturated:
            short = max(1 - found.requests_per_s.value / rate, 0.01)
            why = f"cannot keep {rate:g} requests per second: it completes {found.requests_per_s.value:.3g}"
            return Reading(measurement=found, infeasible=why, violations={"rate": short}, details=loaded.facts())
        return reading(loaded, found.e2el_ms.mean, found.e2el_ms.mean_se)

    def noise(self, window_s: float) -> float:
        """Waiting adds its own."""
        return 0.03

    @property
    def options(self) -> Mapping[str, float]:
        return {"rate_per_s": self.arrival.rate_per_s}


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput(Objective):
    """Requests per second at which every SLO holds with ``SLO_MARGIN`` to spare, on one running engine."""

    name: ClassVar[str] = "goodput"
    unit: ClassVar[str] = "req/s"
    blocks: ClassVar[int] = 2
    worth: ClassVar[float] = 0.05
    pick_margin: ClassVar[float] = 0.0

    @property
    def load(self) -> str:
        return f"the highest rate that meets every SLO with {SLO_MARGIN:.0%} to spare"

    @property
    def constraints(self) -> tuple[Slo, ...]:
        return ()

    def noise(self, window_s: float) -> float:
        """Bursts decide which of two neighbouring rates still holds, the more so the shorter the windows.

        Twelve engines in two studies with windows of 3 s spread by 8 % (`benchmarks/search/results/real-vllm`); here 9.
        """
        return max(PRIOR_SIGMA, 0.05 * math.sqrt(10.0 / window_s))

    def take(self, bench: Bench, effort: Effort) -> Reading:
        tight = [replace(slo, limit_ms=slo.limit_ms * (1 - SLO_MARGIN)) for slo in self.slos]
        tolerance = 0.05 if effort.race else 0.1
        capacity = bench.capacity(
            tight,
            bracket=effort.bracket,
            window_s=effort.shortest_s,
            tolerance=tolerance,
            processes=self.processes,
            lag_limit_ms=effort.lag_limit_ms,
        )
        return self._read(capacity, bench.last, tolerance)

    def _read(self, capacity: Capacity, last: Loaded | None, tolerance: float) -> Reading:
        probe = capacity.nearest_miss or (capacity.probes[-1] if capacity.probes else None)
        found = probe.measurement if probe else (last.measurement if last else None)
        facts = {**(last.facts() if last else {}), "capacity": _plain(capacity)}
        rate, problem = capacity.rate_per_s, capacity.problem
        if rate is not None and probe and probe.measurement.problems:
            problem = probe.measurement.problems[0]
        if problem:
            return Reading(measurement=found, problem=problem, details=facts)
        if rate is None:
            asked = ", ".join(map(str, self.slos))
            why = f"no rate meets {asked} with {SLO_MARGIN:.0%} to spare; {str(capacity).partition('; ')[2]}"
            return Reading(measurement=found, infeasible=why, violations={"slo": _shortfall(probe)}, details=facts)
        high = capacity.bracket[1]
        error = (high - rate) / math.sqrt(12) if high and high > rate else rate * tolerance / 2
        return Reading(measurement=found, value=rate, value_se=error, bracket=(rate, high), details=facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pareto(Objective):
    """Throughput against latency over ``levels`` requests in flight, lightest first, measured in one boot."""

    name: ClassVar[str] = "pareto"
    aspects: ClassVar[tuple[str, ...]] = ("interactive", "balanced", "throughput")
    levels: tuple[int, int, int]

    @property
    def load(self) -> str:
        return f"{', '.join(map(str, self.levels[:-1]))} and {self.levels[-1]} in flight"

    def load_of(self, aspect: str) -> str:
        return f"{self.levels[self.aspects.index(aspect)]} in flight" if aspect else self.load

    def take(self, bench: Bench, effort: Effort) -> Reading:
        loads = {}
        for aspect, level in zip(self.aspects, self.levels, strict=True):
            rules = unless_worse(effort.beat.get(aspect), effort)
            loads[aspect] = bench.measure(
                closed(level, effort, self.processes), tag=aspect, rules=rules, slos=self.slos
            )
            if not loads[aspect].measurement.valid:
                problem = f"{level} in flight: {loads[aspect].measurement.problems[0]}"
                return Reading(measurement=loads[aspect].measurement, problem=problem, details=loads[aspect].facts())
        return self._read(loads, 0.0 if effort.race else SLO_MARGIN)

    def _read(self, loads: Mapping[str, Loaded], margin: float) -> Reading:
        rates = {aspect: output_rate(loaded.measurement) for aspect, loaded in loads.items()}
        value = math.exp(sum(math.log(rate) for rate, _ in rates.values()) / len(rates))
        relative = [(error or 0.0) / rate for rate, error in rates.values()]
        kept = {a: violations(loaded.measurement) for a, loaded in loads.items()}
        heaviest = loads[self.aspects[-1]]
        levels = [_level(a, self.load_of(a), loads[a], kept[a]) for a in loads]
        return Reading(
            measurement=heaviest.measurement,
            value=value,
            value_se=value * math.hypot(*relative) / len(relative),
            violations=kept[self.aspects[0]],
            aspects={a: rates[a][0] for a in loads if all(v <= -margin for v in kept[a].values())},
            details={**heaviest.facts(), "levels": levels},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The options that objectives read; ``concurrency`` None where none was given."""

    objective: str
    slos: tuple[Slo, ...] = ()
    rate_per_s: float | None = None
    price_per_hour: float | None = None
    concurrency: int | None = None


def _latency(asked: Asked, arrival: Arrival | None, concurrency: int, processes: int) -> Objective:
    given = (arrival or Poisson(1.0)).at_rate(asked.rate_per_s or 1.0)
    return Latency(slos=asked.slos, processes=processes, arrival=given)


def _cost(asked: Asked, arrival: Arrival | None, concurrency: int, processes: int) -> Objective:
    price = asked.price_per_hour or 0.0
    return Cost(slos=asked.slos, processes=processes, concurrency=concurrency, price_per_hour=price)


def _pareto(asked: Asked, arrival: Arrival | None, concurrency: int, processes: int) -> Objective:
    lightest = max(1, concurrency // 16)
    levels = (lightest, max(lightest + 1, round(math.sqrt(lightest * concurrency))), concurrency)
    return Pareto(slos=asked.slos, processes=processes, levels=levels)


OBJECTIVES: Mapping[str, Callable[[Asked, Arrival | None, int, int], Objective]] = {
    "throughput": lambda asked, _, concurrency, processes: Throughput(
        slos=asked.slos, processes=processes, concurrency=concurrency
    ),
    "latency": _latency,
    "goodput": lambda asked, _, concurrency, processes: Goodput(slos=asked.slos, processes=processes),
    "pareto": _pareto,
    "cost": _cost,
}


def asked_before(title: str) -> Asked:
    """What a recommendation's objective was asked with. One aspect of pareto is a throughput under its own load."""
    match = _TITLE.fullmatch(title)
    if match is None or match["name"] not in OBJECTIVES:
        return Asked(objective="throughput")
    amount = float(match["amount"]) if match["amount"] else None
    name = "throughput" if match["aspect"] else match["name"]
    return Asked(
        objective=name,
        slos=tuple(Slo.parse(text) for text in match["slos"].split(", ")) if match["slos"] else (),
        rate_per_s=amount if name == "latency" else None,
        price_per_hour=amount if name == "cost" else None,
    )


def refuse_contradictions(asked: Asked) -> None:
    """Raise ``UsageError`` where an option is missing, or has no meaning beside another."""
    name = asked.objective
    if name not in OBJECTIVES:
        raise UsageError(f"--objective {name!r} is unknown. Use one of: {', '.join(OBJECTIVES)}.")
    if name == "goodput" and not asked.slos:
        raise UsageError("--objective goodput needs at least one --slo, such as --slo ttft_p95=500ms.")
    if name == "latency" and asked.rate_per_s is None:
        raise UsageError("--objective latency needs the request rate to hold, such as --rate 4 (requests per second).")
    if name == "cost" and asked.price_per_hour is None:
        raise UsageError("--objective cost needs what the machine costs, such as --price-per-hour 2.50 (dollars).")
    if asked.rate_per_s is not None and name != "latency":
        raise UsageError(
            f"--rate {exact(asked.rate_per_s)} has no meaning with --objective {name}. Leave it out, or take latency."
        )
    if asked.price_per_hour is not None and name != "cost":
        raise UsageError(
            f"--price-per-hour {exact(asked.price_per_hour)} has no meaning with --objective {name}. "
            "Leave it out, or take cost."
        )
    if asked.concurrency is not None and name in ("latency", "goodput"):
        raise UsageError(
            f"--concurrency {asked.concurrency} has no meaning with --objective {name}, which sends at a rate. "
            "Leave it out."
        )
    if name == "pareto" and asked.concurrency is not None and asked.concurrency < 4:
        raise UsageError(f"--concurrency {asked.concurrency} leaves no three loads for pareto. Give 4 or more.")


def make_objective(asked: Asked, arrival: Arrival | None, concurrency: int, processes: int) -> Objective:
    """The objective that was asked for. ``arrival`` is the workload's own process, if it has one."""
    return OBJECTIVES[asked.objective](asked, arrival, concurrency, processes)


def _shortfall(probe: Probe | None) -> float:
    """How far the nearest miss was from the share of requests that an SLO asks for."""
    if probe is None or not probe.measurement.slos:
        return 1.0
    return max(0.01, max(1 - r.share.value / Slo.parse(r.slo).share for r in probe.measurement.slos))


def _level(aspect: str, load: str, loaded: Loaded, violations: Mapping[str, float]) -> dict[str, Any]:
    found = loaded.measurement
    return {
        "aspect": aspect,
        "load": load,
        "output_tokens_per_s": found.output_tokens_per_s.value,
        "ttft_ms": found.ttft_ms.mean,
        "tpot_ms": found.tpot_ms.mean,
        "e2el_ms": found.e2el_ms.mean,
        "violations": dict(violations),
        **loaded.facts(),
        "measurement": found.to_json(),
    }


def _plain(capacity: Capacity) -> dict[str, Any]:
    """A capacity for the record: every rate that was tried, without its whole measurement."""
    probes = [
        {"rate_per_s": p.rate_per_s, "holds": p.holds, "reason": p.reason, "confirming": p.confirming}
        | {"slos": [asdict(r) for r in p.measurement.slos]}
        for p in capacity.probes
    ]
    return {"text": str(capacity), "rate_per_s": capacity.rate_per_s, "bracket": capacity.bracket, "probes": probes}
