"""Is the capacity that the search names true? Found on a running server, then measured anew at it and above it.

    python benchmarks/load/capacity_check.py URL --slo ttft_p95=500ms --slo tpot_p95=50ms [--out FILE.json]

``measure_capacity`` names the highest rate at which every SLO holds. Then, on fresh prompts and other chance, for
``--seconds`` each without an early end: at that rate the SLOs must hold, at 1.3 times it they must not. Each rate
stands with the share of its requests in time and that share's 95 % interval; a check is WRONG where the
interval says so beyond doubt at the rate named, and where it leaves any doubt above it.
"""

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from autotune.load.capacity import Capacity, Probe, judge_rate
from autotune.load.capacity_run import measure_capacity
from autotune.load.measure import measure
from autotune.load.slo import Slo
from autotune.load.types import LoadSpec, Measurement, Target
from autotune.workload.arrivals import Poisson
from autotune.workload.lengths import Lengths
from autotune.workload.types import RequestShape, Workload

ABOVE = 1.3
WORDS = {True: "holds", False: "does not hold", None: "not measured"}


def row(what: str, rate: float, m: Measurement, wrong: bool = False) -> dict[str, Any]:
    """One tested rate, printed and as plain data."""
    holds, reason = judge_rate(m)
    shares = [
        f"{s.slo}: {s.share.value:.1%} [{s.share.low or 0:.1%}, {s.share.high or 1:.1%}] of {s.n}" for s in m.slos
    ]
    cells = (what, f"{rate:.3g}", f"{m.window_s:.0f} s", WORDS[holds], "; ".join(shares) or reason)
    print(f"| {' | '.join(cells)} | {'WRONG' if wrong else ''} |", flush=True)
    return {
        "what": what,
        "rate_per_s": rate,
        "holds": holds,
        "wrong": wrong,
        "reason": reason,
        "window_s": m.window_s,
        "client": asdict(m.client),
        "slos": [asdict(slo) for slo in m.slos],
        "problems": m.problems,
    }


class Check:
    """Searches and checks one server; ``rows`` holds every rate that was tested."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.rows, self.seed = args, list[dict[str, Any]](), time.time_ns()
        self.slos = [Slo.parse(text) for text in args.slo]
        shape = RequestShape("x", Lengths.fixed(args.input), Lengths.fixed(args.output))
        self.target, self.workload = Target(args.url, args.model), Workload("x", (shape,))

    def search(self) -> Capacity:
        """What ``measure_capacity`` says."""

        def probe(p: Probe) -> None:
            self.rows.append(row("confirmation" if p.confirming else "search", p.rate_per_s, p.measurement))

        return measure_capacity(
            self.target,
            self.workload,
            self.slos,
            seed=self.seed,
            point_id=f"c{self.seed}",
            vocab_size=self.args.vocab,
            probe_s=tuple(self.args.probe_seconds),
            confirm_s=self.args.seconds,
            lag_limit_ms=self.args.lag_limit_ms,
            on_probe=probe,
        )

    def fresh(self, rate: float) -> Measurement:
        """One rate, for as long as asked whatever shows."""
        self.seed += 1
        span = {"min_s": self.args.seconds, "max_s": self.args.seconds, "precision": 0, "warmup_max_s": 10}
        load = LoadSpec.open(Poisson(rate), **span, lag_limit_ms=self.args.lag_limit_ms)
        return measure(
            self.target,
            self.workload,
            load,
            seed=self.seed,
            point_id=f"f{self.seed}",
            vocab_size=self.args.vocab,
            slos=self.slos,
        )

    def verify(self, rate: float) -> None:
        """The rate named, and ``ABOVE`` times it."""
        at = self.fresh(rate)
        missed = any(slo.standing == "missed" for slo in at.slos)
        self.rows.append(row("at it, fresh", rate, at, wrong=missed or judge_rate(at)[0] is None))
        above = self.fresh(ABOVE * rate)
        missed = any(slo.standing == "missed" for slo in above.slos)
        self.rows.append(row("above it, fresh", ABOVE * rate, above, wrong=not missed))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--slo", action="append", required=True)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--vocab", type=int, default=4096)
    parser.add_argument("--input", type=int, default=128)
    parser.add_argument("--output", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--probe-seconds", type=float, nargs=2, default=(6, 20), metavar=("SHORTEST", "LONGEST"))
    parser.add_argument("--lag-limit-ms", type=float, default=50, help="the client shares its CPU with the engine")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    check, began = Check(args), time.monotonic()
    print("| what | requests/s | window | SLOs | in time | |\n|---|---|---|---|---|---|")
    found = check.search()
    search_s = round(time.monotonic() - began, 1)
    print(f"found in {search_s} s: {found}")
    if found.rate_per_s is not None:
        check.verify(found.rate_per_s)
    if args.out:
        said = {"capacity_per_s": found.rate_per_s, "said": str(found), "bracket": found.bracket, "search_s": search_s}
        args.out.write_text(json.dumps({**said, "rates": check.rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
