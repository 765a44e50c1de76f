"""What ``autotune bench`` found: a table, JSON, and pictures in one HTML file."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from rich.console import Console
from rich.table import Table

from autotune.load.capacity import Capacity
from autotune.load.diagnosis import Diagnosis
from autotune.load.series import Series
from autotune.load.types import PERCENTILES, Estimate, Latency, Measurement


def print_measurement(measurement: Measurement, diagnosis: Diagnosis | None, console: Console) -> None:
    """Print one measurement for a person."""
    console.print(f"{measurement.workload}, {measurement.load}, {measurement.window_s:.1f} s scored after "
                  f"{measurement.warmup_s:.1f} s of warm-up ({measurement.stopped})", highlight=False)  # fmt: skip
    console.print(_rates(measurement))
    console.print(_latencies(measurement))
    for line in _remarks(measurement, diagnosis):
        console.print(line, highlight=False, markup=False)


def print_capacity(capacity: Capacity, console: Console) -> None:
    """Print a capacity and every rate that was tried."""
    table = Table(box=None, pad_edge=False)
    for name in ("req/s", "holds", "why", "window"):
        table.add_column(name)
    for probe in capacity.probes:
        holds = {True: "yes", False: "no", None: "not measured"}[probe.holds]
        table.add_row(f"{probe.rate_per_s:.3g}", holds, probe.reason, f"{probe.measurement.window_s:.0f} s")
    console.print(table)
    console.print(f"capacity: {capacity}", highlight=False, markup=False)


def write_json(value: Any) -> None:
    """Print any result as JSON on standard output."""
    sys.stdout.write(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY).decode() + "\n")


def write_pictures(measurement: Measurement, data: Series, path: Path) -> None:
    """Latency and token rate over time, and latency by percentile, as one HTML file that needs no network."""
    from plotly.subplots import make_subplots

    figure = make_subplots(
        rows=3,
        cols=1,
        subplot_titles=("Output tokens per second", "Latency over time", "Latency by percentile"),
        vertical_spacing=0.08,
    )
    figure.add_scatter(x=data.rate_at_s, y=data.tokens_per_s, name="tokens/s", row=1, col=1)
    shares = np.linspace(0, 100, 201)
    for name, values in (("TTFT", data.ttft_ms), ("TPOT", data.tpot_ms), ("E2EL", data.e2el_ms)):
        dots = {"mode": "markers", "marker": {"size": 3}}
        figure.add_scatter(x=data.at_s, y=values, name=f"{name} ms", row=2, col=1, **dots)
        if len(values):
            figure.add_scatter(x=shares, y=np.percentile(values, shares), name=f"{name} ms", row=3, col=1)
    start = measurement.warmup_s
    for row in (1, 2):
        figure.add_vrect(x0=start, x1=start + measurement.window_s, opacity=0.08, fillcolor="green", row=row, col=1)
        figure.update_xaxes(title_text="seconds from the start; the scored window is shaded", row=row, col=1)
    figure.update_xaxes(title_text="percentile", row=3, col=1)
    for row in (2, 3):
        figure.update_yaxes(title_text="ms", type="log", row=row, col=1)
    figure.update_layout(height=1200, title=f"{measurement.workload}, {measurement.load}")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.write_html(path, include_plotlyjs=True)


def _rates(m: Measurement) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    rows = [
        ("output tokens/s", _estimate(m.output_tokens_per_s), f"whole run {m.full_run.output_tokens_per_s:.1f}"),
        ("all tokens/s", _estimate(m.total_tokens_per_s), ""),
        ("requests/s", _estimate(m.requests_per_s), f"whole run {m.full_run.requests_per_s:.2f}"),
    ]
    if m.goodput:
        rows.append(("goodput, requests/s", _estimate(m.goodput.requests_per_s), f"{m.goodput.share.value:.1%} of all"))
    for row in rows:
        table.add_row(*row)
    return table


def _latencies(m: Measurement) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("ms")
    for name in ("n", *(f"p{q}" for q in PERCENTILES)):
        table.add_column(name, justify="right", no_wrap=True)
    for name, latency in (("TTFT", m.ttft_ms), ("TPOT", m.tpot_ms), ("ITL", m.itl_ms), ("E2EL", m.e2el_ms)):
        table.add_row(name, str(latency.n), *_percentiles(latency))
    return table


def _percentiles(latency: Latency) -> list[str]:
    found = [latency.percentile(q) for q in PERCENTILES]
    return ["too few" if estimate is None else _estimate(estimate) for estimate in found]


def _estimate(estimate: Estimate) -> str:
    if estimate.low is None and estimate.high is None:
        return _short(estimate.value)
    low = "?" if estimate.low is None else _short(estimate.low)
    high = "?" if estimate.high is None else _short(estimate.high)
    return f"{_short(estimate.value)} ({low}-{high})"


def _short(value: float) -> str:
    """Three digits, and never an exponent."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _remarks(m: Measurement, diagnosis: Diagnosis | None) -> list[str]:
    counts = m.counts
    lines = [
        f"{counts.sent} requests: {counts.completed} completed, {counts.failed} failed, {counts.short} short, "
        f"{counts.cut} cut at the end; {m.totals.prompt_tokens} tokens in, {m.totals.output_tokens} out"
    ]
    lines += [f"SLO {r.slo}: {r.standing}, {r.share.value:.1%} in time" for r in m.slos]
    lines += [f"limit: {diagnosis.limit} ({diagnosis.because}): {diagnosis.advice}"] if diagnosis else []
    lines += [f"failed: {f.count} {f.kind}: {f.sample[:200]}" for f in m.failures]
    lines += [f"note: {note}" for note in m.notes]
    return [*lines, *m.problems]
