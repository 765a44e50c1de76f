"""Our figures against ``vllm bench serve`` on one running vLLM, same shapes, six runs each, in the order ABBA.

    python benchmarks/load/against_vllm_bench.py URL --model NAME --tokenizer DIR --vllm /path/to/vllm \
        [--runs 6] [--out FILE.jsonl]

A server's own speed drifts by more than the clients differ, so only neighbours are compared: each run of ours with
the run of theirs beside it, whose order alternates. Stated is the geometric mean of the ratios with its 95 %
interval (Student's t on the logarithms). Rows are appended to ``--out`` and all of them reported, so that runs may
be made a few at a time.

Two loads. *Closed*: ``--concurrency`` requests in flight. ``vllm bench serve`` has no steady window: its throughput
holds the ramp and the drain (compare with our ``whole_run``). Its detailed result holds every chunk's time, so its
throughput *inside* its own run, from the end of the first wave to the last start, is computed too: that is what
compares with ours. It starts all slots at once, and equal answers would keep them in step: lengths are spread by
``--spread``, from half to one and a half of what is asked. *Open*: equal gaps at ``--share`` of what the closed loop
completed and equal lengths, so that chance does not blur the latencies. Both send `ignore_eos` completions with
random prompts; another seed each run, since it repeats its prompts for an equal one. ``against_truth.py``
compares both with a server that knows what it did.
"""

import argparse
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.load.measure import measure
from autotune.load.records import ClientResult, Outcome
from autotune.load.stats import student_t
from autotune.load.types import LoadSpec, Target
from autotune.workload.arrivals import Constant
from autotune.workload.lengths import Lengths
from autotune.workload.types import RequestShape, Workload

Floats = npt.NDArray[np.float64]
LATENCIES = ("ttft", "itl", "tpot", "e2el")
MEDIANS = tuple(f"{name}_p50_ms" for name in LATENCIES)
FIGURES = {"closed": ("tokens_per_s", "whole_run", *MEDIANS), "open": ("whole_run", *MEDIANS)}


@dataclass(frozen=True, slots=True)
class Seen:
    """What a tool said, and when by ``time.perf_counter``: its steady window, its whole run, its requests' starts."""

    figures: dict[str, float]
    window: tuple[float, float]
    run: tuple[float, float]
    starts: Floats


def lengths(tokens: int, spread: float) -> Lengths:
    low, high = int(tokens * (1 - spread)), int(np.ceil(tokens * (1 + spread)))
    return Lengths("uniform", low, high) if spread else Lengths.fixed(tokens)


def ours(args: argparse.Namespace, load: str, request_rate: float) -> Seen:
    rate = args.share * request_rate
    span = {"min_s": args.seconds, "max_s": args.seconds, "precision": 0, "warmup_max_s": args.seconds / 2}
    closed = load == "closed"
    spread = args.spread if closed else 0.0
    shape = RequestShape("x", lengths(args.input, spread), lengths(args.output, spread))
    spec = LoadSpec.closed(args.concurrency, **span) if closed else LoadSpec.open(Constant(rate), **span)
    seed = time.time_ns()
    kept: list[ClientResult] = []
    m = measure(
        Target(args.url, args.model),
        Workload("x", (shape,)),
        spec,
        seed=seed,
        point_id=f"r{seed}",
        vocab_size=args.vocab,
        on_result=kept.append,
    )
    print("  ", m.problems, m.notes)
    log, start = kept[0].log, kept[0].started + m.warmup_s
    figures = {
        "requests_per_s": m.requests_per_s.value,
        "tokens_per_s": m.output_tokens_per_s.value,
        "whole_run": m.full_run.output_tokens_per_s,
        "failed": m.counts.failed,
        "valid": m.valid,
        "send_lag_p99_ms": m.client.lag_p99_ms,
        "loop_lag_p99_ms": m.client.loop_lag_p99_ms,
        **{f"{name}_p50_ms": getattr(m, f"{name}_ms").p50.value for name in LATENCIES},
    }
    whole = (log["outcome"] == Outcome.OK) & ~log["partial"]
    run = (kept[0].started, float(log["ended"].max()))
    return Seen(figures, (start, start + m.window_s), run, log["sent" if closed else "due"][whole])


def vllms(args: argparse.Namespace, load: str, request_rate: float) -> Seen:
    rate = args.share * request_rate
    closed = load == "closed"
    pace = f"--max-concurrency {args.concurrency}" if closed else f"--request-rate {rate:.6g} --burstiness inf"
    prompts = round((request_rate if closed else rate) * args.seconds)
    prompts = max(2, round(prompts / args.concurrency)) * args.concurrency if closed else prompts
    with tempfile.TemporaryDirectory() as folder:
        command = [
            args.vllm, "bench", "serve", "--backend", "openai", "--base-url", args.url, "--model", args.model,
            "--tokenizer", args.tokenizer, "--dataset-name", "random", "--random-input-len", str(args.input),
            "--random-output-len", str(args.output), "--random-range-ratio", str(args.spread if closed else 0.0),
            "--num-prompts", str(prompts), *pace.split(), "--ignore-eos", "--seed", str(time.time_ns() % 2**31),
            "--num-warmups", str(args.concurrency), "--save-result", "--save-detailed", "--result-dir", folder,
            "--result-filename", "r.json", "--percentile-metrics", "ttft,tpot,itl,e2el", "--disable-tqdm",
        ]  # fmt: skip
        env = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
        subprocess.run(command, check=True, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        found = json.loads((Path(folder) / "r.json").read_text())
    starts, arrivals, ends = times(found)
    window = (float(np.sort(ends)[min(args.concurrency, len(ends) - 1)]), float(starts.max()))
    inside = ((arrivals >= window[0]) & (arrivals < window[1])).sum() / (window[1] - window[0])
    figures = {
        "requests_per_s": found["request_throughput"],
        "tokens_per_s": float(inside) if closed else found["output_throughput"],
        "whole_run": found["output_throughput"],
        "failed": found["failed"],
        **{f"{name}_p50_ms": found[f"median_{name}_ms"] for name in LATENCIES},
    }
    return Seen(figures, window, (float(starts.min()), float(ends.max())), starts)


def times(found: dict[str, Any]) -> tuple[Floats, Floats, Floats]:
    """Starts of the requests, moments of all chunks, ends of the requests, of a detailed result."""
    starts = np.array(found["start_times"])
    first = starts + np.array(found["ttfts"])
    chunks = [t + np.concatenate(([0.0], np.cumsum(gaps))) for t, gaps in zip(first, found["itls"], strict=True)]
    return starts, np.concatenate(chunks), np.array([chunk[-1] for chunk in chunks])


def arguments(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm", required=True, help="the vllm command")
    parser.add_argument("--input", type=int, default=128)
    parser.add_argument("--output", type=int, default=64)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--share", type=float, default=0.6, help="rate of the open loop, of the closed loop's")
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--loads", nargs="+", choices=FIGURES, default=list(FIGURES))
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--out", type=Path)
    return parser


def alternate(
    args: argparse.Namespace, request_rate: float, more: Callable[[Seen, str], dict[str, float]]
) -> list[dict[str, Any]]:
    """The runs, appended to those that ``--out`` already holds."""
    rows = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out and args.out.exists() else []
    done = len({row["run"] for row in rows})
    for run in range(done, done + args.runs):
        for load in args.loads:
            for tool in (ours, vllms) if run % 2 == 0 else (vllms, ours):
                seen = tool(args, load, request_rate)
                row = {"tool": tool.__name__, "load": load, "run": run, "loadavg": os.getloadavg()[0]}
                rows.append({**row, **seen.figures, **more(seen, load)})
                print(json.dumps(rows[-1]), flush=True)
                if args.out:
                    with args.out.open("a") as file:
                        file.write(json.dumps(rows[-1]) + "\n")
    return rows


def paired(mine: Sequence[float], theirs: Sequence[float]) -> str:
    """The geometric mean of the ratios of neighbours, with its 95 % interval."""
    logs = np.log(np.array(mine) / np.array(theirs))
    mean, n = logs.mean(), len(logs)
    if n < 2:
        return f"{np.exp(mean):.3f}"
    half = student_t(n - 1) * logs.std(ddof=1) / np.sqrt(n)
    return f"{np.exp(mean):.3f} [{np.exp(mean - half):.3f}, {np.exp(mean + half):.3f}]"


def of(rows: list[dict[str, Any]], load: str, tool: str, figure: str) -> list[float]:
    """A figure of all runs, in their order."""
    return [r[figure] for r in sorted(rows, key=lambda r: r["run"]) if r["load"] == load and r["tool"] == tool]


def report(rows: list[dict[str, Any]]) -> None:
    print("| load | figure | ours | vllm bench serve | ours / theirs |\n|---|---|---|---|---|")
    for load, figures in FIGURES.items():
        for figure in figures:
            mine, theirs = of(rows, load, "ours", figure), of(rows, load, "vllms", figure)
            if mine:
                print(f"| {load} | {figure} | {median(mine):.2f} | {median(theirs):.2f} | {paired(mine, theirs)} |")


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("url")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--spread", type=float, default=0.5, help="lengths vary by this share, uniformly")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--vocab", type=int, default=4096)
    parser.add_argument("--settle", type=float, default=60, help="seconds of load before the first run")
    args = parser.parse_args()
    settled = ours(argparse.Namespace(**{**vars(args), "seconds": args.settle}), "closed", 0.0)
    report(alternate(args, settled.figures["requests_per_s"], lambda seen, load: {}))


if __name__ == "__main__":
    main()
