"""Reasons for which a point is "not measured". Each returns one line per reason, empty where all is well."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from autotune.load.types import Client, Counts, Failure, LoadSpec, Measurement, ServerCounters

if TYPE_CHECKING:
    from autotune.load.phases import Controller

SATURATED = "client saturated"
ACHIEVED_SHARE = 0.99
CPU_LIMIT = 0.95
COUNT_SHARE = 0.01
CUT_TOKENS = 16
HIT_RATE_MARGIN = 0.05


def window_problems(controller: "Controller", counts: Counts, load: LoadSpec, window_s: float) -> list[str]:
    """The window must be whole and hold requests."""
    if controller.interrupted:
        return [f"not measured: {controller.interrupted}"]
    if counts.in_window == 0:
        return ["not measured: no request ended inside the window"]
    if window_s < 0.999 * load.min_s and not controller.by_rule:
        return [f"not measured: the load ended after {window_s:.1f} s of at least {load.min_s:g} s"]
    return []


def outcome_problems(counts: Counts, failures: Sequence[Failure], unfinished: int, load: LoadSpec) -> list[str]:
    """Too many requests failed, came back short, or never ended."""
    bad = counts.failed + counts.short + unfinished
    total = counts.completed + counts.failed + unfinished
    if not total or bad <= load.error_budget * total:
        return []
    parts = [f"{f.count} {f.kind} ({f.sample[:120]})" for f in sorted(failures, key=lambda f: -f.count)]
    parts += [f"{unfinished} without an end {load.drain_s:g} s after the window"] if unfinished else []
    return [f"not measured: {bad} of {total} requests failed: {'; '.join(parts)}"]


def client_problems(client: Client, load: LoadSpec, *, slo_ms: float | None = None) -> list[str]:
    """The client must have sent what it was to send, when it was to send it."""
    limit_ms = max(load.lag_limit_ms, 0.01 * (slo_ms or 0.0))
    reasons = []
    if load.concurrency is None and client.lag_p99_ms > limit_ms:
        reasons.append(f"sends lag {client.lag_p99_ms:.1f} ms behind schedule (p99, limit {limit_ms:g})")
    if client.achieved < ACHIEVED_SHARE * client.intended:
        reasons.append(f"load reached {client.achieved:.4g} of {client.intended:.4g} intended")
    if client.cpu_share > CPU_LIMIT * load.processes:
        reasons.append(f"its CPU was {100 * client.cpu_share / load.processes:.0f} % busy")
    if not reasons:
        return []
    return [f"not measured: {SATURATED}: {', '.join(reasons)}; {load.processes} client process(es) are too few"]


def check_counts(measurement: Measurement, before: ServerCounters, after: ServerCounters) -> tuple[str, ...]:
    """The client's and the server's token counts must agree.

    Counters are read right before the load and after it. They may differ by 1 %, and by a few tokens for
    every request that was cut or failed, of which the server may count tokens that never arrived.
    """
    counts, totals = measurement.counts, measurement.totals
    loose = counts.cut + counts.failed
    mean_prompt = totals.prompt_tokens / max(1, counts.completed)
    return tuple(
        problem
        for problem in (
            _disagree(
                "output", totals.output_tokens, after.generation_tokens - before.generation_tokens, CUT_TOKENS * loose
            ),
            _disagree("prompt", totals.prompt_tokens, after.prompt_tokens - before.prompt_tokens, mean_prompt * loose),
        )
        if problem
    )


def _disagree(what: str, client: float, server: float, slack: float) -> str | None:
    if abs(client - server) <= COUNT_SHARE * max(client, server) + slack:
        return None
    return f"not measured: the client counts {client:.0f} {what} tokens, the server {server:.0f}"


def check_prefix_hits(measurement: Measurement, before: ServerCounters, after: ServerCounters) -> tuple[str, ...]:
    """A point must not be served from the prefix cache by more than its workload shares."""
    queries = after.prefix_queries - before.prefix_queries
    if queries <= 0:
        return ()
    rate = (after.prefix_hits - before.prefix_hits) / queries
    intended = measurement.prefix_hits.intended
    if intended is None or rate <= intended + HIT_RATE_MARGIN:
        return ()
    return (f"not measured: prefix-cache hit rate {rate:.0%}, the workload shares {intended:.0%}",)
