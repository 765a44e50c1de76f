"""Our figures against ``vllm bench serve`` on one running vLLM, same shapes, six runs each, alternating.

    python benchmarks/load/against_vllm_bench.py URL --vllm /path/to/vllm --tokenizer DIR [--out FILE.json]

``vllm bench serve`` has no steady-state window: its throughput holds the ramp and the drain. Its detailed result
holds every chunk's time, so its throughput *inside* its own run (from the moment all slots are busy until the
last request was sent) is computed too: that is what compares with ours. Both send `ignore_eos` completions
with random prompts; another seed each run, since it repeats its prompts for an equal one.
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
from autotune.workload.lengths import Lengths
from autotune.workload.types import RequestShape, Workload

FIGURES = ("tokens_per_s", "ttft_p50_ms", "itl_p50_ms", "tpot_p50_ms", "e2el_p50_ms")


def ours(args: argparse.Namespace, run: int) -> dict[str, float]:
    shape = RequestShape("x", Lengths.fixed(args.input), Lengths.fixed(args.output))
    load = LoadSpec.closed(args.concurrency, min_s=args.seconds, max_s=args.seconds, precision=0)
    m = measure(
        Target(args.url, args.model),
        Workload("x", (shape,)),
        load,
        seed=time.time_ns(),
        point_id=f"r{run}",
        vocab_size=args.vocab,
    )
    print("  ", m.problems, m.notes)
    medians = {f"{name}_p50_ms": getattr(m, f"{name}_ms").p50.value for name in ("ttft", "itl", "tpot", "e2el")}
    return {"tokens_per_s": m.output_tokens_per_s.value, "whole_run": m.full_run.output_tokens_per_s, **medians}


def vllms(args: argparse.Namespace, run: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        command = [
            args.vllm, "bench", "serve", "--backend", "openai", "--base-url", args.url, "--model", args.model,
            "--tokenizer", args.tokenizer, "--dataset-name", "random", "--random-input-len", str(args.input),
            "--random-output-len", str(args.output), "--num-prompts", str(args.prompts),
            "--max-concurrency", str(args.concurrency), "--ignore-eos", "--seed", str(time.time_ns() % 2**31),
            "--num-warmups", str(args.concurrency), "--save-result", "--save-detailed", "--result-dir", folder,
            "--result-filename", "r.json", "--percentile-metrics", "ttft,tpot,itl,e2el", "--disable-tqdm",
        ]  # fmt: skip
        env = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
        subprocess.run(command, check=True, env=env, stdout=subprocess.DEVNULL)
        found = json.loads((Path(folder) / "r.json").read_text())
    steady = inside(found, args.concurrency)
    medians = {f"{name}_p50_ms": found[f"median_{name}_ms"] for name in ("ttft", "itl", "tpot", "e2el")}
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
    parser.add_argument("--input", type=int, default=256)
    parser.add_argument("--output", type=int, default=64)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--prompts", type=int, default=600)
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for run in range(args.runs):
        order = (ours, vllms) if run % 2 == 0 else (vllms, ours)
        for tool in order:
            rows.append({"tool": tool.__name__, "run": run, "loadavg": os.getloadavg()[0], **tool(args, run)})
            print(json.dumps(rows[-1]), flush=True)
    for figure in (*FIGURES, "whole_run"):
        mine, theirs = (median(r[figure] for r in rows if r["tool"] == name) for name in ("ours", "vllms"))
        print(f"{figure}: ours {mine:.2f}, vllm bench serve {theirs:.2f}, ratio {mine / theirs:.3f}")
    if args.out:
        args.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
