"""Our figures against ``vllm bench serve`` on one running vLLM, same shapes, six runs each, alternating.

    python benchmarks/load/against_vllm_bench.py URL --vllm /path/to/vllm --tokenizer DIR [--out FILE.json]

Two loads a run. *Closed*: ``--concurrency`` requests in flight, for throughput. ``vllm bench serve`` has no steady
window: its throughput holds the ramp and the drain. Its detailed result holds every chunk's time, so its throughput
*inside* its own run (from the moment all slots are busy until the last request was sent) is computed too: that is
what compares with ours. It also starts all slots at once, and equal answers then keep them in step, so that TTFT in a
closed loop is that of a burst. *Open*: Poisson arrivals at ``--rate``, for latencies: there both send alike.
Both send `ignore_eos` completions with random prompts; another seed each run, since it repeats its prompts for an
equal one. Give it a model so slow that the clients' own CPU time does not matter: they share the machine with it.
"""

import argparse
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from autotune.load.measure import measure
from autotune.load.types import LoadSpec, Target
from autotune.workload.arrivals import Poisson
from autotune.workload.lengths import Lengths
from autotune.workload.types import RequestShape, Workload

FIGURES = {"closed": ("tokens_per_s", "whole_run", "itl_p50_ms"), "open": ("ttft_p50_ms", "itl_p50_ms", "tpot_p50_ms")}
LATENCIES = ("ttft", "itl", "tpot", "e2el")


def ours(args: argparse.Namespace, load: str) -> dict[str, float]:
    shape = RequestShape("x", Lengths.fixed(args.input), Lengths.fixed(args.output))
    window = {"min_s": args.seconds, "max_s": args.seconds, "precision": 0}
    closed = load == "closed"
    spec = LoadSpec.closed(args.concurrency, **window) if closed else LoadSpec.open(Poisson(args.rate), **window)
    seed = time.time_ns()
    m = measure(
        Target(args.url, args.model),
        Workload("x", (shape,)),
        spec,
        seed=seed,
        point_id=f"r{seed}",
        vocab_size=args.vocab,
    )
    print("  ", m.problems, m.notes)
    medians = {f"{name}_p50_ms": getattr(m, f"{name}_ms").p50.value for name in LATENCIES}
    return {"tokens_per_s": m.output_tokens_per_s.value, "whole_run": m.full_run.output_tokens_per_s, **medians}


def vllms(args: argparse.Namespace, load: str) -> dict[str, float]:
    pace = ("--max-concurrency", str(args.concurrency)) if load == "closed" else ("--request-rate", str(args.rate))
    prompts = args.prompts if load == "closed" else round(args.rate * args.seconds)
    with tempfile.TemporaryDirectory() as folder:
        command = [
            args.vllm, "bench", "serve", "--backend", "openai", "--base-url", args.url, "--model", args.model,
            "--tokenizer", args.tokenizer, "--dataset-name", "random", "--random-input-len", str(args.input),
            "--random-output-len", str(args.output), "--num-prompts", str(prompts), *pace,
            "--ignore-eos", "--seed", str(time.time_ns() % 2**31),
            "--num-warmups", str(args.concurrency), "--save-result", "--save-detailed", "--result-dir", folder,
            "--result-filename", "r.json", "--percentile-metrics", "ttft,tpot,itl,e2el", "--disable-tqdm",
        ]  # fmt: skip
        env = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
        subprocess.run(command, check=True, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        found = json.loads((Path(folder) / "r.json").read_text())
    steady = inside(found, args.concurrency) if load == "closed" else found["output_throughput"]
    medians = {f"{name}_p50_ms": found[f"median_{name}_ms"] for name in LATENCIES}
    return {"tokens_per_s": steady, "whole_run": found["output_throughput"], "failed": found["failed"], **medians}


def inside(found: dict[str, Any], concurrency: int) -> float:
    """Tokens per second between the end of the first wave and the last start of a request."""
    starts = np.array(found["start_times"])
    first = starts + np.array(found["ttfts"])
    arrivals = np.concatenate(
        [t + np.concatenate(([0.0], np.cumsum(gaps))) for t, gaps in zip(first, found["itls"], strict=True)]
    )
    ends = np.sort([t + sum(gaps) for t, gaps in zip(first, found["itls"], strict=True)])
    low, high = ends[min(concurrency, len(ends) - 1)], starts.max()
    return float(((arrivals >= low) & (arrivals < high)).sum() / (high - low))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--vllm", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--vocab", type=int, default=4096)
    parser.add_argument("--input", type=int, default=128)
    parser.add_argument("--output", type=int, default=64)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--rate", type=float, default=3.0, help="requests per second of the open loop")
    parser.add_argument("--prompts", type=int, default=120, help="requests of vllm bench serve in the closed loop")
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--settle", type=float, default=60, help="seconds of load before the first run")
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    ours(argparse.Namespace(**{**vars(args), "seconds": args.settle}), "closed")
    rows: list[dict[str, Any]] = []
    for run in range(args.runs):
        for load in FIGURES:
            for tool in (ours, vllms) if run % 2 == 0 else (vllms, ours):
                row = {"tool": tool.__name__, "load": load, "run": run, "loadavg": os.getloadavg()[0]}
                rows.append({**row, **tool(args, load)})
                print(json.dumps(rows[-1]), flush=True)
    report(rows)
    if args.out:
        args.out.write_text(json.dumps(rows, indent=1))


def report(rows: list[dict[str, Any]]) -> None:
    for load, figures in FIGURES.items():
        for figure in figures:
            mine, theirs = (
                median(r[figure] for r in rows if r["load"] == load and r["tool"] == tool) for tool in ("ours", "vllms")
            )
            print(f"{load} {figure}: ours {mine:.2f}, vllm bench serve {theirs:.2f}, ratio {mine / theirs:.3f}")


if __name__ == "__main__":
    main()
