"""Rules that end a point as soon as the decision that it serves is made.

A rule is asked four times a second from the start of the window and may end it before ``min_s``: so each has
a shortest window of its own, and an interval wider than 95 % because it looks often.
"""

from collections.abc import Callable, Sequence

import numpy as np

from autotune.load.phases import Rule, View
from autotune.load.records import Outcome, Sample
from autotune.load.slo import LOOK_Z, Scored, Slo, judge, scored
from autotune.load.stats import mean_interval, student_t
from autotune.load.types import SloResult

SHORTEST_S = 3.0
LOOKS = 2.0
PART_OF_A_TURN = 0.25
GROWTH_S = 6.0
# A server that was empty takes in what it cannot keep for as long as the first requests last.
LIVES = 2.0
FEWEST_SAMPLES = 12
FEWEST_WAITING = 3.0


def clearly_worse(than_events_per_s: float, *, shortest_s: float = SHORTEST_S) -> Rule:
    """End once the rate is below the incumbent's beyond doubt (interval twice as wide as 95 %).

    Before a closed loop has had a whole turn its rate may be ``PART_OF_A_TURN`` off, whatever the interval says.
    """

    def rule(view: View) -> str | None:
        progress, rate = view.progress, view.progress.rate
        if progress.window_s < shortest_s or rate.high is None:
            return None
        high = rate.value + LOOKS * (rate.high - rate.value)
        if not view.open_loop and progress.turns < 1:
            high *= 1 + PART_OF_A_TURN
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


def decided(slos: Sequence[Slo], *, shortest_s: float = SHORTEST_S, horizon_s: float = 0.0, z: float = LOOK_Z) -> Rule:
    """End once every SLO is met, or one is missed, beyond the doubt that ``z`` leaves.

    With ``horizon_s`` "met" also means that it would hold at the end of a window of that length: the load has lasted
    longer than its requests do, and the queue before their first tokens does not grow towards a limit.
    """

    def rule(view: View) -> str | None:
        if view.progress.window_s < shortest_s:
            return None
        latencies = _due_and_ended(view)
        results = [judge(slo, latencies, z=z) for slo in slos]
        missed = next((result for result in results if result.standing == "missed"), None)
        if missed:
            return f"SLO missed: {missed.slo}"
        met = all(result.standing == "met" for result in results)
        return "every SLO met" if met and (not horizon_s or _lasts(view, slos, results, horizon_s)) else None

    return rule


def _lasts(view: View, slos: Sequence[Slo], results: Sequence[SloResult], horizon_s: float) -> bool:
    """Whether the queue would still be short enough at the end of a window of ``horizon_s``.

    What waits for its first token, divided by the rate at which requests come, is how long they wait (Little). Its
    trend, plus one standard error, is carried to the horizon and must stay below the limits that hold the wait; where
    none does, below the time that a request takes.
    """
    life_s = _life_s(view)
    load_start = view.samples[-1].at - view.progress.elapsed_s
    full = [sample for sample in view.samples if sample.at >= load_start + life_s]
    if view.progress.elapsed_s < LIVES * life_s or len(full) < FEWEST_SAMPLES:
        return False
    slope, error, _ = _trend(full, _waiting)
    rate = (full[-1].sent - full[0].sent) / (full[-1].at - full[0].at)
    waits = [
        (slo.limit_ms - (r.value_ms or 0.0)) / 1e3 for slo, r in zip(slos, results, strict=True) if slo.metric != "tpot"
    ]
    return (slope + error) * horizon_s <= rate * min(waits, default=life_s)


def _due_and_ended(view: View) -> Scored:
    """Requests of the window that were due long enough ago that their end tells nothing about their length."""
    log = view.log
    oldest = min(view.samples[-1].oldest_due, view.samples[-1].at)
    rows = (log["due"] >= view.window_start) & (log["due"] < oldest) & ~log["partial"]
    rows &= log["outcome"] != Outcome.CUT
    order = np.argsort(log["due"][rows], kind="stable")
    return scored(log, np.flatnonzero(rows)[order], "due" if view.open_loop else "sent")


def diverging(*, shortest_s: float = GROWTH_S) -> Rule:
    """End once requests pile up without doubt: the server can't keep this rate.

    Either the requests in flight grow so fast that they double within the window's length, or those that wait for their
    first token grow by a tenth of them. Growth = the slope over the window, three standard errors above zero.
    """

    def rule(view: View) -> str | None:
        if view.progress.window_s < shortest_s or not view.open_loop:
            return None
        slope, error, level = _trend(view.samples, lambda sample: sample.in_flight)
        error = max(error, _chance_slope(level, _life_s(view), view.samples[-1].at - view.samples[0].at))
        if slope - 3 * error > 0 and slope * view.progress.window_s > 0.5 * level:
            return f"diverging queue: {slope:+.3g} requests in flight per second"
        waiting, error, _ = _trend(view.samples, _waiting)
        if waiting - 3 * error > 0 and waiting * view.progress.window_s > FEWEST_WAITING + 0.1 * level:
            return f"diverging queue: {waiting:+.3g} requests more per second wait for their first token"
        return None

    return rule


def _waiting(sample: Sample) -> int:
    """Requests that have no token yet."""
    return sample.sent - sample.first_tokens


def _life_s(view: View) -> float:
    """Mean seconds from due to ended of the requests that ended so far; infinite while there are none."""
    ok = view.log["outcome"] == Outcome.OK
    return float((view.log["ended"][ok] - view.log["due"][ok]).mean()) if ok.any() else float("inf")


def _chance_slope(level: float, life_s: float, span_s: float) -> float:
    """Standard error of the slope that chance arrivals alone give to the number in flight.

    Poisson arrivals that stay ``life_s`` have a variance of ``level`` and are alike for as long as they stay: white
    noise of intensity ``level * life_s`` over spans longer than that, and a line through it has this error.
    """
    return float(np.sqrt(12 * level * life_s / span_s**3)) if span_s > 0 else float("inf")


def _trend(samples: Sequence[Sample], count: Callable[[Sample], int]) -> tuple[float, float, float]:
    """Slope per second over batches of what ``count`` takes from samples, its standard error, and the mean."""
    times = np.array([sample.at for sample in samples])
    values = np.array([float(count(sample)) for sample in samples])
    batches = min(12, len(times))
    if batches < 4:
        return 0.0, float("inf"), float(values.mean())
    t = np.array([part.mean() for part in np.array_split(times, batches)])
    y = np.array([part.mean() for part in np.array_split(values, batches)])
    centred = t - t.mean()
    slope = float(centred @ y / (centred @ centred))
    rest = y - y.mean() - slope * centred
    error = float(np.sqrt(rest @ rest / (batches - 2) / (centred @ centred)))
    return slope, error * student_t(batches - 2) / 2, float(values.mean())
