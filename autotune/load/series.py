"""A run over time, thinned to what a picture can show."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autotune.load.phases import rates_between
from autotune.load.records import ClientResult, Outcome

Floats = npt.NDArray[np.float64]
MOST_POINTS = 5000
RATE_SLICE_S = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """Times in seconds from the start of the load; latencies in ms of requests that ended well."""

    at_s: Floats
    ttft_ms: Floats
    tpot_ms: Floats
    e2el_ms: Floats
    rate_at_s: Floats
    tokens_per_s: Floats


def series(result: ClientResult, *, open_loop: bool) -> Series:
    """The series of a run; at most 5 000 requests, evenly thinned."""
    log = result.log
    rows = np.flatnonzero((log["outcome"] == Outcome.OK) & ~log["partial"])
    rows = rows[:: max(1, len(rows) // MOST_POINTS)]
    due, sent, first, last = (log[name][rows] for name in ("due", "sent", "first", "last"))
    start = due if open_loop else sent
    end = result.samples[-1].at if result.samples else result.started
    rates = rates_between(result.samples, result.started, end)
    group = max(1, round(RATE_SLICE_S / max((end - result.started) / max(1, len(rates)), 1e-9)))
    grouped = rates[: len(rates) // group * group].reshape(-1, group).mean(axis=1)
    return Series(
        at_s=start - result.started,
        ttft_ms=1e3 * (first - start),
        tpot_ms=1e3 * (last - first) / np.maximum(log["output_tokens"][rows] - 1, 1),
        e2el_ms=1e3 * (last - start),
        rate_at_s=(np.arange(len(grouped)) + 0.5) * group * (end - result.started) / max(1, len(rates)),
        tokens_per_s=grouped,
    )
