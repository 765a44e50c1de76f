"""When a point is warm, and when it is measured: the controller that a running load reports to.

    warm-up   until the rate of events is steady: at least ``settle_s`` after the first token, a closed loop
              has had one turn, and the two halves of the last seconds differ by no more than 5 % or
              twice their standard error
    window    until a rule says that its decision is made, or (from ``min_s`` and ``min_requests`` on) the
              interval of the rate is narrow enough, or ``max_s``
    drain     open loop only: load goes on until every request that was due in the window has ended

A closed loop has had one *turn* when as many requests have ended as it has slots. Until the first one is over the
server digests the prompts of all slots at once, which small token budgets make it do for many seconds at a rate that
looks steady. From then on a loop of equally long requests repeats itself turn by turn: its rate over whole turns is
exact, over a part of one it can be a fifth off. So its window ends with a turn, unless none fits into ``max_s``.

Closed loops need no drain: requests that *end* in the window are a fair sample of all once the load is steady,
and those in flight at its end are cut.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from autotune.load.records import RequestLog, Sample
from autotune.load.stats import mean_interval, wilson
from autotune.load.types import Estimate, LoadSpec

SLICE_S = 0.1
CHECK_S = 0.25
STEADY_SHARE = 0.05
Phase = Literal["warm-up", "window", "drain"]


@dataclass(frozen=True, slots=True)
class Progress:
    """How a running point goes. ``rate`` is in events (nearly always tokens) per second of the window."""

    phase: Phase
    elapsed_s: float
    window_s: float
    rate: Estimate
    in_flight: int
    ended: int
    failed: int
    turns: float = 0.0
    """Turns of a closed loop that the window holds; an open loop has none."""


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """What a rule may look at: the window so far, its samples and every request that has ended yet."""

    progress: Progress
    samples: Sequence[Sample]
    log: RequestLog
    window_start: float
    open_loop: bool


Rule = Callable[[View], str | None]
"""Looks at the window so far; a reason ends the point."""


class Controller:
    """Decides from samples alone; the driver only asks ``on_tick`` whether to end."""

    def __init__(
        self,
        load: LoadSpec,
        *,
        stop: Callable[[], str | None] | None = None,
        rules: Sequence[Rule] = (),
        on_progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self._load = load
        self._stop = stop
        self._rules = rules
        self._on_progress = on_progress
        self.log = RequestLog()
        self.samples: list[Sample] = []
        self.window_start: float | None = None
        self.window_end: float | None = None
        self.stopped = ""
        self.interrupted: str | None = None
        self.settled = True
        self.by_rule = False
        self._first_token_at: float | None = None
        self._moved_at, self._events = 0.0, -1
        self._window_index = 0
        self._turns_seen = 0
        self._next_check = 0.0

    def on_tick(self, sample: Sample) -> bool:
        """Take note of a sample; True ends the load."""
        self.samples.append(sample)
        if self._first_token_at is None and sample.first_tokens:
            self._first_token_at = sample.at
        if sample.events != self._events or not sample.in_flight:
            self._moved_at, self._events = sample.at, sample.events
        reason = self._stop() if self._stop else None
        if reason:
            self._interrupt(reason)
            return True
        if self.window_end is not None:
            return self._drained(sample)
        if sample.at < self._next_check:
            return False
        self._next_check = sample.at + CHECK_S
        return self._check(sample)

    def finish(self, at: float) -> None:
        """The load ended by itself (a trace is over): what was measured so far is the window."""
        if self.window_end is None:
            self.window_end = at
            self.stopped = self.stopped or "end of the trace"
        if self.window_start is None:
            self.window_start = at

    def _check(self, sample: Sample) -> bool:
        if self._hopeless(sample):
            return True
        if self.window_start is None:
            self._maybe_open(sample)
            self._tell(sample, "warm-up", Estimate(0.0))
            return False
        rate = self._rate()
        progress = self._tell(sample, "window", rate)
        reason = self._over(progress)
        if reason is None:
            return False
        self.stopped, self.window_end = reason, sample.at
        if self.by_rule and self._load.concurrency is None:
            self.window_end = self._decided_until(sample)
        return self.by_rule or self._load.concurrency is not None or self._drained(sample)

    def _decided_until(self, sample: Sample) -> float:
        """A rule has judged the requests that were due before the oldest one still running: no drain is needed."""
        assert self.window_start is not None
        oldest = min(sample.oldest_due, sample.at)
        return oldest if oldest > self.window_start else sample.at

    def _hopeless(self, sample: Sample) -> bool:
        """Errors beyond the budget, or a server that gives no token at all, or none any more.

        The server's own counters do not tell the last: an engine that hangs says what it said before.
        """
        load, started = self._load, self.samples[0].at
        silent_s = max(load.warmup_max_s, load.stall_timeout_s)
        if sample.failed >= 10 and (wilson(sample.failed, sample.ended).low or 0.0) > load.error_budget:
            self._interrupt(f"error budget spent: {sample.failed} of {sample.ended} requests failed")
        elif self._first_token_at is None and sample.at - started > silent_s:
            self._interrupt(f"no token in {silent_s:g} s")
        elif self._first_token_at is not None and sample.at - self._moved_at > load.stall_timeout_s:
            self._interrupt(f"no token for {load.stall_timeout_s:g} s with {sample.in_flight} requests in flight")
        return self.interrupted is not None

    def _interrupt(self, reason: str) -> None:
        self.interrupted = self.stopped = reason
        self.finish(self.samples[-1].at)

    def _maybe_open(self, sample: Sample) -> None:
        if self._first_token_at is None:
            return
        load, warm_s = self._load, sample.at - self._first_token_at
        too_long = warm_s >= load.warmup_max_s
        turned = sample.ended >= (load.concurrency or 1)
        steady = warm_s >= load.settle_s and self._steady(warm_s)
        if too_long or (turned and steady):
            self.window_start, self.settled = sample.at, steady
            self._window_index = len(self.samples) - 1

    def _steady(self, warm_s: float) -> bool:
        span_s = max(self._load.settle_s, warm_s / 2)
        rates = rates_between(self.samples, self.samples[-1].at - span_s, self.samples[-1].at)
        if len(rates) < 8:
            return False
        early, late = np.array_split(rates, 2)
        error = np.sqrt(early.var() / len(early) + late.var() / len(late))
        return bool(abs(late.mean() - early.mean()) <= max(STEADY_SHARE * rates.mean(), 2 * error))

    def _rate(self) -> Estimate:
        window = self.samples[self._window_index :]
        return mean_interval(rates_between(window, window[0].at, window[-1].at))

    def _over(self, progress: Progress) -> str | None:
        load = self._load
        if progress.window_s >= load.max_s:
            return f"longest window, {load.max_s:g} s"
        for rule in self._rules:
            reason = rule(self._view(progress))
            if reason:
                self.by_rule = True
                return reason
        turn_over = self._turn_over(progress)
        if progress.window_s < load.min_s or load.precision <= 0 or not turn_over:
            return None
        if progress.ended >= load.min_requests and progress.rate.relative_half_width <= load.precision:
            return f"rate known within {100 * load.precision:g} %"
        if load.concurrency and progress.window_s * (1 + 1 / int(progress.turns)) > load.max_s:
            turns = int(progress.turns)
            return f"{turns} turn{'s' * (turns > 1)} of the loop; one more would not fit into {load.max_s:g} s"
        return None

    def _turn_over(self, progress: Progress) -> bool:
        """Whether a turn of the closed loop has ended since the last look; an open loop may end at any time."""
        if self._load.concurrency is None:
            return True
        before, self._turns_seen = self._turns_seen, int(progress.turns)
        return self._turns_seen > before

    def _view(self, progress: Progress) -> View:
        assert self.window_start is not None
        window = self.samples[self._window_index :]
        return View(progress, window, self.log, self.window_start, self._load.concurrency is None)

    def _tell(self, sample: Sample, phase: Phase, rate: Estimate) -> Progress:
        base = self.samples[self._window_index] if self.window_start else sample
        progress = Progress(
            phase=phase,
            elapsed_s=sample.at - self.samples[0].at,
            window_s=sample.at - base.at,
            rate=rate,
            in_flight=sample.in_flight,
            ended=sample.ended - base.ended,
            failed=sample.failed - base.failed,
            turns=(sample.ended - base.ended) / self._load.concurrency if self._load.concurrency else 0.0,
        )
        if self._on_progress:
            self._on_progress(progress)
        return progress

    def _drained(self, sample: Sample) -> bool:
        assert self.window_end is not None
        return sample.oldest_due > self.window_end or sample.at > self.window_end + self._load.drain_s


def rates_between(samples: Sequence[Sample], start: float, end: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Events per second in equal slices of about 0.1 s between two moments."""
    slices = int((end - start) / SLICE_S)
    if slices < 1 or len(samples) < 2:
        return np.empty(0)
    first = next((i for i in range(len(samples) - 1, 0, -1) if samples[i].at <= start), 0)
    used = samples[first:]
    edges = np.linspace(start, end, slices + 1)
    counts = np.interp(edges, [s.at for s in used], [s.events for s in used])
    return np.diff(counts) / np.diff(edges)
