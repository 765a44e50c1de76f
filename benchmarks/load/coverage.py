"""Do 95 % intervals contain the truth? 1 000 simulated loads of a batching server, for throughput, p50 and p95.

The simulated server decodes all running requests together: a step takes ``base + per_seq * running`` plus
the prefill of a waiting prompt, times log-normal noise whose level drifts (an AR(1) process with a memory of
about a second), so that rates and latencies of one run are autocorrelated as real ones are. Answer
lengths vary. A closed loop of 32; 20 s scored after 5 s. The truth is a run of 4 000 s.

    python benchmarks/load/coverage.py [--cases 1000] [--out FILE.json]
"""

import argparse
import json
from pathlib import Path

import numpy as np

from autotune.load.stats import mean_interval, percentile

CLIENTS, SLOTS, WARM_S, WINDOW_S = 32, 24, 5.0, 20.0


def simulate(rng: np.random.Generator, seconds: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Times of steps, tokens of each step; times and TTFTs (s) of first tokens."""
    now, level = 0.0, 0.0
    waiting = [(0.0, int(rng.integers(8, 72))) for _ in range(CLIENTS)]
    running: list[int] = []
    at, tokens, first_at, ttft = [], [], [], []
    while now < seconds:
        admitted = waiting.pop(0) if waiting and len(running) < SLOTS else None
        step = 0.008 + 0.0003 * len(running) + (0.012 if admitted else 0.0)
        level = 0.97 * level + 0.24 * rng.normal()
        now += step * np.exp(0.15 * level + 0.1 * rng.normal())
        if admitted:
            first_at.append(now)
            ttft.append(now - admitted[0])
            running.append(admitted[1])
        at.append(now)
        tokens.append(len(running))
        running = [left - 1 for left in running]
        ended = sum(left <= 0 for left in running)
        running = [left for left in running if left > 0]
        waiting += [(now, int(rng.integers(8, 72))) for _ in range(ended)]
    return np.array(at), np.array(tokens), np.array(first_at), np.array(ttft)


def rates(at: np.ndarray, tokens: np.ndarray, start: float, end: float) -> np.ndarray:
    """Tokens per second in slices of 0.1 s."""
    edges = np.linspace(start, end, round((end - start) / 0.1) + 1)
    return np.diff(np.interp(edges, at, np.cumsum(tokens))) / np.diff(edges)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    at, tokens, first_at, ttft = simulate(np.random.default_rng(10**6), 4000)
    settled = ttft[first_at > WARM_S]
    truth = {"throughput": float(rates(at, tokens, WARM_S, 4000).mean())}
    truth |= {f"ttft p{q}": float(np.percentile(settled, q)) for q in (50, 95)}
    inside = dict.fromkeys(truth, 0)
    textbook = 0
    for case in range(args.cases):
        at, tokens, first_at, ttft = simulate(np.random.default_rng(case), WARM_S + WINDOW_S)
        slices = rates(at, tokens, WARM_S, WARM_S + WINDOW_S)
        estimates = {"throughput": mean_interval(slices)}
        estimates |= {f"ttft p{q}": percentile(ttft[first_at > WARM_S], q) for q in (50, 95)}
        for name, estimate in estimates.items():
            low = -np.inf if estimate.low is None else estimate.low
            high = np.inf if estimate.high is None else estimate.high
            inside[name] += low <= truth[name] <= high
        half = 1.96 * slices.std(ddof=1) / np.sqrt(len(slices))
        textbook += abs(slices.mean() - truth["throughput"]) <= half
    coverage = {name: count / args.cases for name, count in inside.items()}
    coverage["throughput, textbook interval"] = textbook / args.cases
    print(json.dumps({"cases": args.cases, "truth": truth, "coverage": coverage}, indent=1))
    if args.out:
        args.out.write_text(json.dumps({"cases": args.cases, "truth": truth, "coverage": coverage}, indent=1))


if __name__ == "__main__":
    main()
