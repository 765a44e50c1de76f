"""Our figures and those of ``vllm bench serve`` against a server that wrote down what it did, and its known design.

    python benchmarks/load/against_truth.py --vllm /path/to/vllm [--concurrency 16] [--runs 6] [--out FILE.jsonl]

``exact_server`` gives every first token after TTFT_S, every further one after ITL_S, whatever the load. Loads, order
and figures are those of ``against_vllm_bench.py``, all lengths equal. Beside each figure of a tool stands the truth
(``true_``): the same figure from the moments of the server's writes during that tool's own window or run.
``true_sent_ms`` is how long after the start that the tool notes for a request the server had read it (median).
"""

import argparse
import json
import os
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from against_vllm_bench import FIGURES, Floats, Seen, alternate, arguments, of, paired
from client_capacity import tokenizer
from exact import ExactServer, Served, exact_server

TTFT_S, ITL_S = 0.08, 0.02


def rate(moments: Floats, span: tuple[float, float]) -> float:
    return float(((moments >= span[0]) & (moments < span[1])).sum() / (span[1] - span[0]))


def truth(server: ExactServer, seen: Seen, output: int) -> dict[str, float]:
    """The figures of a run from the server's own moments, in ms and tokens per second."""
    run = [r for r in server.served() if seen.run[0] <= r.received <= seen.run[1]]
    moments = np.concatenate([r.sent for r in run])
    whole = [r for r in run if r.whole and r.asked == output]
    medians = {name: 1e3 * float(np.median(values)) for name, values in latencies(whole).items()}
    received = np.array([r.received for r in whole])
    nearest = received[np.minimum(np.searchsorted(received, np.sort(seen.starts)), len(received) - 1)]
    return {
        "tokens_per_s": rate(moments, seen.window),
        "whole_run": rate(moments, seen.run),
        **{f"{name}_p50_ms": value for name, value in medians.items()},
        "sent_ms": 1e3 * float(np.median(nearest - np.sort(seen.starts))),
    }


def latencies(whole: list[Served]) -> dict[str, Floats]:
    """Seconds per request (ITL: per gap)."""
    return {
        "ttft": np.array([r.sent[0] - r.received for r in whole]),
        "itl": np.concatenate([np.diff(r.sent) for r in whole]),
        "tpot": np.array([(r.sent[-1] - r.sent[0]) / (r.asked - 1) for r in whole]),
        "e2el": np.array([r.sent[-1] - r.received for r in whole]),
    }


def report(rows: list[dict[str, Any]]) -> None:
    print("| load | figure | truth | ours / truth | vllm bench serve / truth | ours / theirs |")
    print("|---|---|---|---|---|---|")
    for load, figures in FIGURES.items():
        for figure in figures if of(rows, load, "ours", "run") else ():
            mine, theirs = (of(rows, load, tool, figure) for tool in ("ours", "vllms"))
            true, also = (of(rows, load, tool, f"true_{figure}") for tool in ("ours", "vllms"))
            ratios = " | ".join((paired(mine, true), paired(theirs, also), paired(mine, theirs)))
            print(f"| {load} | {figure} | {median(true):.2f} | {ratios} |")
    for load in FIGURES:
        for tool in ("ours", "vllms"):
            print(load, tool, "read by the server, ms after the start:", of(rows, load, tool, "true_sent_ms"))


def main() -> None:
    parser = arguments(__doc__)
    parser.set_defaults(concurrency=16)
    args = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    known_s = TTFT_S + (args.output - 1) * ITL_S
    print(json.dumps({"ttft_ms": 1e3 * TTFT_S, "itl_ms": 1e3 * ITL_S, "e2el_ms": 1e3 * known_s}))
    print(f"closed loop: {args.concurrency * args.output / known_s:.1f} tokens/s where a slot is never idle")
    with (
        tempfile.TemporaryDirectory() as folder,
        exact_server(Path(folder), ttft_s=TTFT_S, itl_s=ITL_S, core=cores[0]) as server,
    ):
        os.sched_setaffinity(0, cores[1:])
        fixed = {"url": server.url, "model": "m", "tokenizer": tokenizer(folder), "vocab": 4096, "spread": 0.0}

        def more(seen: Seen, load: str) -> dict[str, float]:
            return {f"true_{name}": value for name, value in truth(server, seen, args.output).items()}

        report(alternate(argparse.Namespace(**{**vars(args), **fixed}), args.concurrency / known_s, more))


if __name__ == "__main__":
    main()
