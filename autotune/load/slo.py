"""Service-level objectives on latency, and whether a sample meets them.

``ttft_p95=500ms`` says that 95 % of the requests must have a TTFT of at most 500 ms. It is judged as what
it is, a share: of n requests, how many were in time? The share's Wilson interval, computed with the
effective sample size that autocorrelation leaves, lies above 95 % (met), below (missed) or around it
(open). That needs no percentile, works from a few dozen requests on and can be asked again and again while
requests come in; ``look_z`` is stricter than the usual 1.96 because it is.
"""

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

import numpy as np
import numpy.typing as npt

from autotune.errors import UsageError
from autotune.load.records import Outcome, RequestLog
from autotune.load.stats import inflation, mean_interval, wilson
from autotune.load.types import Estimate, Goodput, SloResult, Standing

Metric = Literal["ttft", "tpot", "e2el"]
METRICS: tuple[Metric, ...] = ("ttft", "tpot", "e2el")
LOOK_Z = 2.6
FEWEST = 20
FINEST, LONGEST_MS = Decimal("0.001"), 86_400_000
_TEXT = re.compile(r"(ttft|tpot|e2el)_p(\d{1,2}(?:\.\d+)?)\s*(?:<=|=|<|:)\s*(\d+(?:\.\d+)?)\s*(ms|s)")


@dataclass(frozen=True, slots=True)
class Slo:
    """``share`` of the requests must have ``metric`` at or below ``limit_ms``."""

    metric: Metric
    share: float
    limit_ms: float

    @classmethod
    def parse(cls, text: str) -> "Slo":
        """From ``ttft_p95=500ms``. Raises UsageError."""
        match = _TEXT.fullmatch(text.strip().lower())
        if not match:
            raise UsageError(
                f"--slo {text!r} cannot be read: write METRIC_pNN=LIMIT with METRIC one of {', '.join(METRICS)} "
                "and LIMIT in ms or s, like ttft_p95=500ms"
            )
        metric = next(name for name in METRICS if name == match[1])
        percentile, limit_ms = Decimal(match[2]), Decimal(match[3]) * (1000 if match[4] == "s" else 1)
        if not (percentile and limit_ms):
            raise UsageError(f"--slo {text!r} asks for nothing that can be met or missed: give numbers above 0.")
        if limit_ms > LONGEST_MS or percentile % FINEST or limit_ms % FINEST:
            raise UsageError(
                f"--slo {text!r} asks for more than can be measured: give a percentile with at most three decimals "
                "and a limit of whole microseconds up to 86400s."
            )
        return cls(metric, float(percentile / 100), float(limit_ms))

    def __str__(self) -> str:
        return f"{self.metric}_p{_plain(100 * self.share)}={_plain(self.limit_ms)}ms"


def _plain(number: float) -> str:
    """Up to three decimals and never an exponent, so that ``Slo.parse`` reads it back."""
    return f"{number:.3f}".rstrip("0").rstrip(".")


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """Per-request latencies in ms that SLOs are judged on, in order of time. Unfinished requests: infinite."""

    ttft: npt.NDArray[np.float64]
    tpot: npt.NDArray[np.float64]
    e2el: npt.NDArray[np.float64]

    def of(self, metric: Metric) -> npt.NDArray[np.float64]:
        """The latencies of one metric."""
        return {"ttft": self.ttft, "tpot": self.tpot, "e2el": self.e2el}[metric]


def scored(log: RequestLog, rows: npt.NDArray[np.bool_] | npt.NDArray[np.int64], start: str) -> Scored:
    """Latencies of the chosen rows of a log; ``start`` names the column that latency counts from.

    A request that failed, or was cut before its end, counts as infinitely late. TPOT of an answer with one
    token is 0.
    """
    ok = (log["outcome"] == Outcome.OK)[rows]
    begin, first, last = (log[name][rows] for name in (start, "first", "last"))
    steps = np.maximum(log["output_tokens"][rows] - 1, 1)
    return Scored(
        ttft=np.where(first > 0, 1e3 * (first - begin), np.inf),
        tpot=np.where(ok, 1e3 * (last - first) / steps, np.inf),
        e2el=np.where(ok, 1e3 * (last - begin), np.inf),
    )


def judge(slo: Slo, latencies: Scored, *, z: float = LOOK_Z) -> SloResult:
    """How an SLO stands on these requests."""
    values = latencies.of(slo.metric)
    n = len(values)
    if n == 0:
        return SloResult(str(slo), "open", Estimate(0.0, 0.0, 1.0), None, 0)
    in_time = values <= slo.limit_ms
    effective = n / inflation(in_time.astype(np.float64), max(float(in_time.mean()), 1 / n))
    share = wilson(float(in_time.mean()) * effective, effective, z=z)
    value_ms = float(np.sort(values)[max(0, int(np.ceil(slo.share * n)) - 1)])
    standing: Standing = "open"
    if n >= FEWEST and share.low is not None and share.high is not None:
        standing = "met" if share.low >= slo.share else "missed" if share.high < slo.share else "open"
    return SloResult(str(slo), standing, share, value_ms if np.isfinite(value_ms) else None, n)


def goodput(slos: tuple[Slo, ...], latencies: Scored, ended_s: npt.NDArray[np.float64], window_s: float) -> Goodput:
    """Requests per second that met every limit. ``ended_s``: their moments, seconds from the window's start."""
    good = np.ones(len(latencies.ttft), dtype=bool)
    for slo in slos:
        good &= latencies.of(slo.metric) <= slo.limit_ms
    slices = max(4, min(64, len(good) // 4))
    per_slice = np.histogram(ended_s[good], slices, (0.0, max(window_s, 1e-9)))[0] * slices / max(window_s, 1e-9)
    return Goodput(mean_interval(per_slice.astype(np.float64)), wilson(float(good.sum()), len(good)))
