"""Rules that end a point as soon as the decision that it serves is made.

A rule is asked four times a second from the start of the window and may end it before ``min_s``: so each has
a shortest window of its own, and an interval wider than 95 % because it looks often.
"""

from collections.abc import Sequence

import numpy as np

from autotune.load.phases import Rule, View
from autotune.load.records import Outcome, Sample
from autotune.load.slo import Scored, Slo, judge, scored
from autotune.load.stats import mean_interval, student_t

SHORTEST_S = 3.0
LOOKS = 2.0
GROWTH_S = 6.0


def clearly_worse(than_events_per_s: float, *, shortest_s: float = SHORTEST_S) -> Rule:
    """End once the rate is below the incumbent's beyond doubt (interval twice as wide as 95 %)."""

    def rule(view: View) -> str | None:
        rate = view.progress.rate
        if view.progress.window_s < shortest_s or rate.high is None:
            return None
        high = rate.value + LOOKS * (rate.high - rate.value)
        return f"clearly worse than {than_events_per_s:.4g} per second" if high < than_events_per_s else None

    return rule


def clearly_fewer_tokens(than_tokens_per_s: float, *, shortest_s: float = SHORTEST_S) -> Rule:
    """Like ``clearly_worse``, in tokens: servers differ in how many tokens one event carries.

    Nothing is decided before a request has ended and told its tokens.
    """

    def rule(view: View) -> str | None:
        ok = view.log["outcome"] == Outcome.OK
        tokens, events = float(view.log["output_tokens"][ok].sum()), float(view.log["events"][ok].sum())
        if not tokens or not events:
            return None
        reason = clearly_worse(than_tokens_per_s * events / tokens, shortest_s=shortest_s)(view)
        return reason and f"clearly worse than {than_tokens_per_s:.4g} tokens per second"

    return rule


def mean_known(share: float, *, shortest_s: float = SHORTEST_S, least: int = 30) -> Rule:
    """End once the mean E2EL of the requests due in the window is known within ``share`` of it."""

    def rule(view: View) -> str | None:
        if view.progress.window_s < shortest_s:
            return None
        latencies = _due_and_ended(view).e2el
        latencies = latencies[np.isfinite(latencies)]
        if len(latencies) < least or mean_interval(latencies).relative_half_width > share:
            return None
        return f"mean latency known within {100 * share:g} %"

    return rule


def decided(slos: Sequence[Slo], *, shortest_s: float = SHORTEST_S) -> Rule:
    """End once every SLO is met, or one is missed, beyond doubt."""

    def rule(view: View) -> str | None:
        if view.progress.window_s < shortest_s:
            return None
        standings = _standings(view, slos)
        if "missed" in standings:
            return f"SLO missed: {slos[standings.index('missed')]}"
        return "every SLO met" if all(standing == "met" for standing in standings) else None

    return rule


def _standings(view: View, slos: Sequence[Slo]) -> list[str]:
    latencies = _due_and_ended(view)
    return [judge(slo, latencies).standing for slo in slos]


def _due_and_ended(view: View) -> Scored:
    """Requests of the window that were due long enough ago that their end tells nothing about their length."""
    log = view.log
    oldest = min(view.samples[-1].oldest_due, view.samples[-1].at)
    rows = (log["due"] >= view.window_start) & (log["due"] < oldest) & ~log["partial"]
    rows &= log["outcome"] != Outcome.CUT
    order = np.argsort(log["due"][rows], kind="stable")
    return scored(log, np.flatnonzero(rows)[order], "due" if view.open_loop else "sent")


def diverging(*, shortest_s: float = GROWTH_S) -> Rule:
    """End once the number of requests in flight grows without doubt: the server can't keep this rate.

    Growth = the slope of requests in flight over the window, with an interval from batches (three standard
    errors), above zero and large enough to double what is in flight within the window's length.
    """

    def rule(view: View) -> str | None:
        if view.progress.window_s < shortest_s or not view.open_loop:
            return None
        slope, error, level = _growth(view.samples)
        if slope - 3 * error > 0 and slope * view.progress.window_s > 0.5 * level:
            return f"diverging queue: {slope:+.3g} requests in flight per second"
        return None

    return rule


def _growth(samples: Sequence[Sample]) -> tuple[float, float, float]:
    """Slope of requests in flight per second, its standard error, and their mean."""
    times = np.array([s.at for s in samples])
    flight = np.array([float(s.in_flight) for s in samples])
    batches = min(12, len(times))
    t = np.array([part.mean() for part in np.array_split(times, batches)])
    y = np.array([part.mean() for part in np.array_split(flight, batches)])
    if batches < 4:
        return 0.0, float("inf"), float(flight.mean())
    centred = t - t.mean()
    slope = float(centred @ y / (centred @ centred))
    rest = y - y.mean() - slope * centred
    error = float(np.sqrt(rest @ rest / (batches - 2) / (centred @ centred)))
    return slope, error * student_t(batches - 2) / 2, float(flight.mean())
