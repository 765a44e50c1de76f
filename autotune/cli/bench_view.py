"""Runs a bench with a line of progress and prints what came out."""

import sys
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from autotune.load.capacity import Probe
from autotune.load.phases import Progress
from autotune.report.bench import print_capacity, print_measurement, write_json, write_pictures
from autotune.tuner.bench import BenchResult, BenchSettings, bench


def run_and_show(settings: BenchSettings, *, html: Path | None, as_json: bool) -> bool:
    """Run, print, draw; whether the result is valid."""
    told = Console(stderr=True)
    with told.status("asking the server for its model") as status:

        def on_progress(progress: Progress) -> None:
            status.update(_line(progress))

        def on_probe(probe: Probe) -> None:
            told.print(f"{probe.rate_per_s:.3g} req/s: {probe.reason}", highlight=False, markup=False)

        status.update("loading")
        result = bench(settings, on_progress=on_progress, on_probe=on_probe)
    if result.message:
        told.print(result.message, highlight=False, markup=False)
    _show(result, as_json=as_json)
    if html and result.measurement and result.series:
        write_pictures(result.measurement, result.series, html)
        told.print(f"pictures: {html}", highlight=False, markup=False)
    if result.capacity:
        return not result.capacity.problem
    return bool(result.measurement and result.measurement.valid)


def _show(result: BenchResult, *, as_json: bool) -> None:
    if as_json:
        diagnosis = asdict(result.diagnosis) if result.diagnosis else None
        capacity = asdict(result.capacity) if result.capacity else None
        measurement = result.measurement.to_json() if result.measurement else None
        write_json({"measurement": measurement, "capacity": capacity, "diagnosis": diagnosis})
        return
    console = Console(file=sys.stdout)
    if result.measurement:
        print_measurement(result.measurement, result.diagnosis, console)
    if result.capacity:
        print_capacity(result.capacity, console)


def _line(progress: Progress) -> str:
    rate = f", {progress.rate.value:.0f} tokens/s" if progress.rate.value else ""
    failed = f", {progress.failed} failed" if progress.failed else ""
    return f"{progress.phase} {progress.window_s or progress.elapsed_s:.0f} s{rate}, {progress.ended} ended{failed}"
