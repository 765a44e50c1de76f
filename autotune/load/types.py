"""The values that go into and come out of a measurement.

A ``Measurement`` is one point: what was asked, what came back, with an interval on every figure that a
decision may rest on, and the list of reasons, if any, for which it is "not measured".

Definitions, the usual ones of the field except that latency counts from the *scheduled* time in an open loop:

    TTFT    first event with a choice, minus start
    TPOT    (last event with a choice - first) / (output tokens - 1), per request with two or more tokens
    ITL     gap between consecutive events of a stream
    E2EL    last event with a choice, minus start
    output tokens are the server's ``usage.completion_tokens``
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from autotune.workload.arrivals import Arrival

PERCENTILES = (50, 90, 95, 99)
AUTO_PROCESSES = 0


@dataclass(frozen=True, slots=True)
class Target:
    """An OpenAI-compatible server: ``base_url`` without ``/v1``, the served model's name, an optional key."""

    base_url: str
    model: str
    api_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class LoadSpec:
    """How to load a server, and for how long.

    Closed loop: ``concurrency`` requests are always in flight. Open loop: requests are sent when ``arrival``
    says, whatever the server does. The scored window starts when the token rate is steady and every slot may have ended
    a request (not before ``settle_s``, at the latest after ``warmup_max_s``) and lasts between ``min_s`` and ``max_s``.
    It ends early once the throughput interval's half-width is at most ``precision`` of its mean.
    A ``precision`` of 0 leaves the end to rules and ``max_s``. ``error_budget`` is the share of requests that
    may fail. ``processes`` client processes share the load; ``AUTO_PROCESSES`` takes as many as needed. Sends of an
    open loop may lag ``lag_limit_ms`` behind their schedule (p99).
    """

    concurrency: int | None = None
    arrival: Arrival | None = None
    min_s: float = 8.0
    max_s: float = 60.0
    warmup_min_s: float = 2.0
    warmup_max_s: float = 30.0
    precision: float = 0.02
    min_requests: int = 50
    error_budget: float = 0.005
    request_timeout_s: float = 600.0
    stall_timeout_s: float = 60.0
    drain_s: float = 30.0
    processes: int = 1
    lag_limit_ms: float = 5.0

    @classmethod
    def closed(cls, concurrency: int, **options: Any) -> "LoadSpec":
        """A closed loop."""
        return cls(concurrency=concurrency, **options)

    @classmethod
    def open(cls, arrival: Arrival, **options: Any) -> "LoadSpec":
        """An open loop."""
        return cls(arrival=arrival, **options)

    def __post_init__(self) -> None:
        if (self.concurrency is None) == (self.arrival is None):
            raise ValueError("a load is either closed (concurrency) or open (arrival)")
        if self.min_s > self.max_s:
            raise ValueError(f"min_s {self.min_s} is above max_s {self.max_s}")

    @property
    def settle_s(self) -> float:
        """The shortest warm-up: ``warmup_min_s``, or twice the shortest window where that is less."""
        return min(self.warmup_min_s, 2 * self.min_s)

    def __str__(self) -> str:
        return f"{self.concurrency} in flight" if self.concurrency else str(self.arrival)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % interval; a limit that the sample can't support is None."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def relative_half_width(self) -> float:
        """Half the interval as a share of the value; infinite where the interval is open."""
        if self.low is None or self.high is None or self.value == 0:
            return float("inf")
        return (self.high - self.low) / 2 / abs(self.value)


@dataclass(frozen=True, slots=True)
class Latency:
    """One latency in milliseconds over ``n`` samples. Percentiles that ``n`` can't carry are None.

    ``mean_se`` is the mean's standard error, autocorrelation included; None where it is not known.
    """

    n: int
    mean: float
    p50: Estimate | None = None
    p90: Estimate | None = None
    p95: Estimate | None = None
    p99: Estimate | None = None
    mean_se: float | None = None

    def percentile(self, q: int) -> Estimate | None:
        """The estimate of percentile ``q``, one of 50, 90, 95, 99."""
        return {50: self.p50, 90: self.p90, 95: self.p95, 99: self.p99}[q]


@dataclass(frozen=True, slots=True)
class Failure:
    """Requests that failed in one way, with the first body or message seen."""

    kind: str
    count: int
    sample: str = ""


@dataclass(frozen=True, slots=True)
class Counts:
    """Requests of the whole run. ``cut`` were still running when the load ended and were cancelled."""

    sent: int
    completed: int
    failed: int
    cut: int
    short: int
    in_window: int


@dataclass(frozen=True, slots=True)
class Totals:
    """Tokens of the whole run: the server's ``usage`` for completed requests, events for cut ones.

    ``cached_tokens`` is what the server said it found in its prefix cache (0 where it says nothing).
    """

    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    cut_output_tokens: int


@dataclass(frozen=True, slots=True)
class FullRun:
    """The run from its first request to its end, ramp and drain included: what simpler tools report."""

    duration_s: float
    output_tokens_per_s: float
    requests_per_s: float


@dataclass(frozen=True, slots=True)
class Client:
    """How well the client kept up: lag of sends behind schedule, of the event loop, and CPU share.

    ``achieved`` over ``intended`` is in requests in flight (closed loop) or requests per second (open).
    """

    intended: float
    achieved: float
    lag_p50_ms: float
    lag_p99_ms: float
    loop_lag_p99_ms: float
    cpu_share: float
    tokens_per_event: float
    burst_share: float


@dataclass(frozen=True, slots=True)
class PrefixHits:
    """Intended and reported prefix-cache hit rate; None where the workload or the server doesn't say."""

    intended: float | None
    reported: float | None = None


@dataclass(frozen=True, slots=True)
class Goodput:
    """Requests per second that met every SLO, and their share with its Wilson interval."""

    requests_per_s: Estimate
    share: Estimate


Standing = Literal["met", "missed", "open"]


@dataclass(frozen=True, slots=True)
class SloResult:
    """How one SLO stands: the share of ``n`` requests in time, and the latency at the SLO's percentile.

    ``value_ms`` is None where too many requests never ended.
    """

    slo: str
    standing: Standing
    share: Estimate
    value_ms: float | None
    n: int


@dataclass(frozen=True, slots=True)
class Measurement:
    """One point, measured. ``problems`` empty = ``valid``; ``notes`` are worth knowing but spoil nothing."""

    workload: str
    load: str
    point_id: str
    seed: int
    output_tokens_per_s: Estimate
    total_tokens_per_s: Estimate
    requests_per_s: Estimate
    ttft_ms: Latency
    tpot_ms: Latency
    itl_ms: Latency
    e2el_ms: Latency
    warmup_s: float
    window_s: float
    full_run: FullRun
    counts: Counts
    totals: Totals
    client: Client
    prefix_hits: PrefixHits
    failures: tuple[Failure, ...] = ()
    goodput: Goodput | None = None
    slos: tuple[SloResult, ...] = ()
    stopped: str = ""
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def valid(self) -> bool:
        """Whether the figures may be used at all."""
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        """Plain data for ``json.dumps``; ``from_json`` reads it back."""
        return {**asdict(self), "valid": self.valid}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Measurement":
        """The measurement that ``to_json`` wrote."""
        fields = {name: value for name, value in data.items() if name != "valid"}
        for name in ("output_tokens_per_s", "total_tokens_per_s", "requests_per_s"):
            fields[name] = Estimate(**data[name])
        for name in ("ttft_ms", "tpot_ms", "itl_ms", "e2el_ms"):
            fields[name] = _latency(data[name])
        for name, kind in _PARTS.items():
            fields[name] = kind(**data[name])
        fields["failures"] = tuple(Failure(**failure) for failure in data["failures"])
        fields["slos"] = tuple(SloResult(**{**r, "share": Estimate(**r["share"])}) for r in data.get("slos", ()))
        if data["goodput"] is not None:
            fields["goodput"] = Goodput(**{k: Estimate(**v) for k, v in data["goodput"].items()})
        return cls(**{**fields, "problems": tuple(data["problems"]), "notes": tuple(data["notes"])})


_PARTS: Mapping[str, type] = {
    "full_run": FullRun,
    "counts": Counts,
    "totals": Totals,
    "client": Client,
    "prefix_hits": PrefixHits,
}


def _latency(data: Mapping[str, Any]) -> Latency:
    percentiles = {f"p{q}": data[f"p{q}"] and Estimate(**data[f"p{q}"]) for q in PERCENTILES}
    return Latency(n=data["n"], mean=data["mean"], mean_se=data.get("mean_se"), **percentiles)


@dataclass(frozen=True, slots=True)
class ServerCounters:
    """The server's own token counters at one moment (monotonic totals since its start)."""

    prompt_tokens: float
    generation_tokens: float
    prefix_queries: float = 0.0
    prefix_hits: float = 0.0
    preemptions: float = 0.0
