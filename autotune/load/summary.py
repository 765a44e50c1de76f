"""From what a client wrote down to one ``Measurement``.

Closed loop: latencies of the requests that ended (first token: came) inside the window, from the moment they
were sent; requests of the first wave that started at an age are left out. Open loop: latencies of
the requests that were *due* inside the window, from the moment they were due.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.load.checks import client_problems, outcome_problems, window_problems
from autotune.load.phases import Controller, rates_between
from autotune.load.records import FAILURE_WORDS, ClientResult, Outcome, RequestLog, gap_ms
from autotune.load.slo import Slo, goodput, judge, scored
from autotune.load.stats import BATCHES, Z95, latency, mean_interval, steady_from, student_t
from autotune.load.types import (
    PERCENTILES,
    Client,
    Counts,
    Estimate,
    Failure,
    FullRun,
    Goodput,
    Latency,
    LoadSpec,
    Measurement,
    PrefixHits,
    SloResult,
    Totals,
)
from autotune.workload.types import Workload

Floats = npt.NDArray[np.float64]
MIN_GAPS = 300
WIDE = 0.1
# What a slot may wait for the client between two requests: times are promised to 1 ms + 1 %, and the 1 % is
# ``checks.ACHIEVED_SHARE``. Without it, few short requests in flight would look like a client at its limit.
TURN_S = 0.001


@dataclass(frozen=True, slots=True)
class Window:
    """The scored part of a run, in seconds of the run's clock."""

    start: float
    end: float

    @property
    def length_s(self) -> float:
        """Seconds."""
        return self.end - self.start

    def holds(self, moments: Floats) -> npt.NDArray[np.bool_]:
        """Which moments lie inside."""
        return (moments >= self.start) & (moments < self.end)


def summarise(
    result: ClientResult,
    controller: Controller,
    workload: Workload,
    load: LoadSpec,
    *,
    seed: int,
    point_id: str,
    slos: Sequence[Slo] = (),
) -> Measurement:
    """The measurement of one run."""
    assert controller.window_start is not None and controller.window_end is not None
    window = Window(controller.window_start, controller.window_end)
    log, ratio = result.log, _tokens_per_event(result.log)
    output, total, requests = _rates(result, window, ratio)
    ttft, tpot, e2el = _latencies(log, window, open_loop=load.concurrency is None)
    client = _client(result, window, load, ratio)
    counts = _counts(log, window)
    good, standings = _objectives(log, window, tuple(slos), open_loop=load.concurrency is None)
    return Measurement(
        workload=workload.name,
        load=str(load),
        point_id=point_id,
        seed=seed,
        output_tokens_per_s=output,
        total_tokens_per_s=total,
        requests_per_s=requests,
        ttft_ms=ttft,
        tpot_ms=tpot,
        e2el_ms=e2el,
        itl_ms=_gaps(result, window),
        warmup_s=window.start - result.started,
        window_s=window.length_s,
        full_run=_full_run(result, ratio),
        counts=counts,
        totals=_totals(log, ratio),
        client=client,
        prefix_hits=_prefix_hits(log, workload),
        failures=_failures(result),
        goodput=good,
        slos=standings,
        stopped=controller.stopped,
        problems=(
            *window_problems(controller, counts, load, window.length_s),
            *outcome_problems(counts, _failures(result), _unfinished(log, window, load), load),
            *(
                []
                if controller.interrupted
                else client_problems(client, load, slo_ms=min((s.limit_ms for s in slos), default=None))
            ),
        ),
        notes=_notes(controller, client, output, rates_between(result.samples, window.start, window.end)),
    )


def _tokens_per_event(log: RequestLog) -> float:
    """Tokens that one event carries: more than 1 where the server joins tokens."""
    ok = log["outcome"] == Outcome.OK
    events = int(log["events"][ok].sum())
    return float(log["output_tokens"][ok].sum()) / events if events else 1.0


def _rates(result: ClientResult, window: Window, ratio: float) -> tuple[Estimate, Estimate, Estimate]:
    """Output tokens, all tokens and completed requests per second. A prompt counts when it is answered."""
    log = result.log
    output = rates_between(result.samples, window.start, window.end) * ratio
    edges = np.linspace(window.start, window.end, len(output) + 1)
    width_s = window.length_s / max(1, len(output))
    prompts = np.histogram(log["first"], edges, weights=log["prompt_tokens"])[0] / width_s if len(output) else output
    ended = log["ended"][log["outcome"] == Outcome.OK]
    requests = np.histogram(ended, edges)[0] / width_s if len(output) else output
    return mean_interval(output), mean_interval(output + prompts), mean_interval(requests)


def _latencies(log: RequestLog, window: Window, *, open_loop: bool) -> tuple[Latency, Latency, Latency]:
    start = log["due"] if open_loop else log["sent"]
    whole = ~log["partial"] & ((log["outcome"] == Outcome.OK) | (log["outcome"] == Outcome.SHORT))
    begun = ~log["partial"] & (log["first"] > 0)
    scored = whole & window.holds(log["due"] if open_loop else log["ended"])
    first = begun & window.holds(log["due"] if open_loop else log["first"])
    several = scored & (log["output_tokens"] > 1)
    tpot = (log["last"] - log["first"])[several] / (log["output_tokens"][several] - 1)
    order = np.argsort(log["first"][first], kind="stable")
    return (
        latency(1e3 * (log["first"] - start)[first][order]),
        latency(1e3 * tpot),
        latency(1e3 * (log["last"] - start)[scored]),
    )


def _objectives(
    log: RequestLog, window: Window, slos: tuple[Slo, ...], *, open_loop: bool
) -> tuple[Goodput | None, tuple[SloResult, ...]]:
    """Goodput and SLOs over all requests of the window, failed and unfinished ones included."""
    if not slos:
        return None, ()
    moment = "due" if open_loop else "ended"
    rows = window.holds(log[moment]) & ~log["partial"]
    rows &= open_loop | (log["outcome"] != Outcome.CUT)
    order = np.flatnonzero(rows)[np.argsort(log[moment][rows], kind="stable")]
    latencies = scored(log, order, "due" if open_loop else "sent")
    good = goodput(slos, latencies, log[moment][order] - window.start, window.length_s)
    return good, tuple(judge(slo, latencies, z=Z95) for slo in slos)


def _gaps(result: ClientResult, window: Window) -> Latency:
    """ITL: percentiles of the summed histogram; their intervals from batches of whole seconds."""
    rows = result.gaps.between(window.start, window.end)
    total = rows.sum(axis=0)
    n = int(total.sum())
    if n < MIN_GAPS:
        return Latency(n, 0.0)
    bins = np.arange(len(total)) + 0.5
    mean = float(total @ gap_ms(bins) / n)
    return Latency(n, mean, mean_se=None, **{f"p{q}": _gap_percentile(rows, q) for q in PERCENTILES})


def _gap_percentile(rows: npt.NDArray[np.int64], q: int) -> Estimate:
    value = _histogram_percentile(rows.sum(axis=0), q)
    batches = min(BATCHES, len(rows))
    if batches < 4:
        return Estimate(value)
    parts = [_histogram_percentile(part.sum(axis=0), q) for part in np.array_split(rows, batches) if part.sum()]
    spread = float(np.sqrt(np.mean([(part - value) ** 2 for part in parts]) / (len(parts) - 1)))
    half = student_t(len(parts) - 1) * spread
    return Estimate(value, max(0.0, value - half), value + half)


def _histogram_percentile(counts: npt.NDArray[np.int64], q: int) -> float:
    reached = np.cumsum(counts)
    rank = q / 100 * reached[-1]
    index = int(np.searchsorted(reached, rank))
    before = reached[index - 1] if index else 0
    inside = (rank - before) / counts[index] if counts[index] else 0.5
    return float(gap_ms(index + inside))


def _counts(log: RequestLog, window: Window) -> Counts:
    outcome = log["outcome"]
    short = int((outcome == Outcome.SHORT).sum())
    ok = int((outcome == Outcome.OK).sum())
    cut = int((outcome == Outcome.CUT).sum())
    return Counts(
        sent=len(log),
        completed=ok + short,
        failed=len(log) - ok - short - cut,
        cut=cut,
        short=short,
        in_window=int(((outcome == Outcome.OK) & window.holds(log["ended"])).sum()),
    )


def _totals(log: RequestLog, ratio: float) -> Totals:
    ended = (log["outcome"] == Outcome.OK) | (log["outcome"] == Outcome.SHORT)
    begun = ~ended & (log["first"] > 0)
    cut_tokens = round(float(log["events"][begun].sum()) * ratio)
    return Totals(
        prompt_tokens=int(log["prompt_tokens"][ended | begun].sum()),
        output_tokens=int(log["output_tokens"][ended].sum()) + cut_tokens,
        cached_tokens=int(np.maximum(log["cached_tokens"][ended], 0).sum()),
        cut_output_tokens=cut_tokens,
    )


def _full_run(result: ClientResult, ratio: float) -> FullRun:
    log = result.log
    if not len(log):
        return FullRun(0.0, 0.0, 0.0)
    duration_s = float(log["ended"].max()) - result.started
    completed = int((log["outcome"] == Outcome.OK).sum())
    return FullRun(duration_s, _totals(log, ratio).output_tokens / duration_s, completed / duration_s)


def _client(result: ClientResult, window: Window, load: LoadSpec, ratio: float) -> Client:
    log = result.log
    inside = window.holds(log["due"])
    lag_ms = 1e3 * (log["sent"] - log["due"])[inside]
    used = [s for s in result.samples if window.start <= s.at <= window.end]
    cpu_s = used[-1].cpu_s - used[0].cpu_s if len(used) > 1 else 0.0
    late_s = float(np.mean([s.loop_lag_s for s in used])) if used else 0.0
    intended, achieved = _intended_achieved(log, inside, window, load, late_s)
    rows = result.gaps.between(window.start, window.end).sum(axis=0)
    tiny = int(np.searchsorted(gap_ms(np.arange(len(rows))), 0.05))
    return Client(
        intended=intended,
        achieved=achieved,
        lag_p50_ms=_quantile(lag_ms, 50),
        lag_p99_ms=_quantile(lag_ms, 99),
        loop_lag_p99_ms=_quantile(np.array([1e3 * s.loop_lag_s for s in used]), 99),
        cpu_share=cpu_s / window.length_s if window.length_s else 0.0,
        tokens_per_event=ratio,
        burst_share=float(rows[:tiny].sum() / rows.sum()) if rows.sum() else 0.0,
    )


def _intended_achieved(
    log: RequestLog, inside: npt.NDArray[np.bool_], window: Window, load: LoadSpec, late_s: float
) -> tuple[float, float]:
    """Closed loop: a slot is idle from the end of a request, which the loop sees ``late_s`` late, to the next send."""
    if load.concurrency is None:
        due = int(inside.sum())
        sent = int((inside & window.holds(log["sent"])).sum())
        return due / window.length_s if window.length_s else 0.0, sent / window.length_s if window.length_s else 0.0
    turns_s = (log["sent"] - log["due"])[inside]
    idle_s = max(0.0, float(turns_s.sum()) + len(turns_s) * (late_s - TURN_S))
    share = 1 - idle_s / (load.concurrency * window.length_s) if window.length_s else 0.0
    return float(load.concurrency), load.concurrency * max(0.0, share)


def _quantile(values: Floats, q: float) -> float:
    return float(np.percentile(values, q)) if len(values) else 0.0


def _prefix_hits(log: RequestLog, workload: Workload) -> PrefixHits:
    told = log["cached_tokens"] >= 0
    prompt = int(log["prompt_tokens"][told].sum())
    reported = float(log["cached_tokens"][told].sum()) / prompt if prompt else None
    return PrefixHits(workload.intended_hit_rate, reported)


def _failures(result: ClientResult) -> tuple[Failure, ...]:
    kinds, counts = np.unique(result.log["outcome"], return_counts=True)
    return tuple(
        Failure(FAILURE_WORDS[kind], int(count), result.failure_samples.get(kind, ""))
        for kind, count in zip(kinds.tolist(), counts.tolist(), strict=True)
        if kind in FAILURE_WORDS
    )


def _unfinished(log: RequestLog, window: Window, load: LoadSpec) -> int:
    """Requests due in an open loop's window that the drain did not see end."""
    if load.concurrency is not None:
        return 0
    return int(((log["outcome"] == Outcome.CUT) & window.holds(log["due"])).sum())


def _notes(controller: Controller, client: Client, rate: Estimate, series: Floats) -> tuple[str, ...]:
    unsteady = steady_from(series) > len(series) / 4
    spread = rate.relative_half_width
    notes: list[Any] = [
        spread > WIDE and np.isfinite(spread) and f"the token rate is known only within {100 * spread:.0f} %",
        unsteady and "the token rate still moved in the first part of the window",
        not controller.settled and "the token rate was not steady when the longest warm-up was over",
        client.burst_share > 0.5
        and f"{100 * client.burst_share:.0f} % of the events came together with another one: "
        "ITL and TPOT show how the server sends, not how it computes",
        client.loop_lag_p99_ms > 20 and f"the client was held up for {client.loop_lag_p99_ms:.0f} ms at times (p99)",
    ]
    return tuple(note for note in notes if note)
