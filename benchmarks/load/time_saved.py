"""What sequential stopping saves: 30 points, measured for a fixed time and measured until the decision is made.

The real controller and rules run on simulated token streams: noise of 2 to 12 %, correlated over about a
second, which makes the mean of 10 s vary by 1 to 5 % (measured inside boots on a GPU: 0.4 to 5 %), and a
warm-up ramp of a random length. Simulated time costs nothing, so ten rounds of 30 points take a minute.
Fixed: 5 s of warm-up and 60 s scored. Sequential: the controller's own warm-up, between 8 and 60 s, ended
once the rate is known within 2 % or is clearly worse than the lower limit of the best so far.

    python benchmarks/load/time_saved.py [--rounds 10] [--out FILE.json]
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from autotune.load.phases import Controller, Rule
from autotune.load.records import Sample
from autotune.load.stopping import clearly_worse
from autotune.load.types import LoadSpec

POINTS, TICK_S = 30, 0.05
FIXED = LoadSpec.closed(32, min_s=60, max_s=60, warmup_min_s=5, warmup_max_s=5, precision=0)
SEQUENTIAL = LoadSpec.closed(32, min_s=8, max_s=60)


def stream(rate: float, noise: float, ramp_s: float, rng: np.random.Generator) -> Iterator[Sample]:
    """Samples of a load whose rate is known but for its noise."""
    events, level, tick = 0.0, 0.0, 0
    while True:
        at = tick * TICK_S
        level = 0.95 * level + 0.31 * rng.normal()
        here = rate * min(1.0, (at + 0.2) / ramp_s) * max(0.0, 1 + noise * level)
        events += here * TICK_S
        ended = int(events / 64)
        yield Sample(at, int(events), int(events > 0), ended + 32, ended, 0, 32, at, 0.0, 0.0)
        tick += 1


def take(load: LoadSpec, rules: list[Rule], samples: Iterator[Sample]) -> tuple[float, float]:
    """The measured rate and the seconds it took."""
    controller = Controller(load, rules=rules)
    for sample in samples:
        if controller.on_tick(sample):
            break
    assert controller.window_start is not None and controller.window_end is not None
    inside = [s for s in controller.samples if controller.window_start <= s.at <= controller.window_end]
    return (inside[-1].events - inside[0].events) / (inside[-1].at - inside[0].at), sample.at


def one_round(seed: int) -> dict[str, float]:
    """30 points both ways."""
    rng = np.random.default_rng(seed)
    truth = rng.uniform(0.35, 1.0, POINTS) * 8000
    noise, ramp_s = rng.uniform(0.02, 0.12, POINTS), rng.uniform(0.5, 4, POINTS)
    figures: dict[str, list[tuple[float, float]]] = {"fixed": [], "sequential": []}
    best = 0.0
    for i in range(POINTS):
        streams = [stream(truth[i], noise[i], ramp_s[i], np.random.default_rng((seed, i, k))) for k in range(2)]
        figures["fixed"].append(take(FIXED, [], streams[0]))
        rules = [clearly_worse(best)] if best else []
        figures["sequential"].append(take(SEQUENTIAL, rules, streams[1]))
        best = max(best, (1 - SEQUENTIAL.precision) * figures["sequential"][-1][0])
    fixed, sequential = (np.array(figures[name]) for name in ("fixed", "sequential"))
    return {
        "fixed_s": float(fixed[:, 1].sum()),
        "sequential_s": float(sequential[:, 1].sum()),
        "share_of_time": float(sequential[:, 1].sum() / fixed[:, 1].sum()),
        "spearman": float(spearmanr(fixed[:, 0], sequential[:, 0]).statistic),
        "same_best": float(fixed[:, 0].argmax() == sequential[:, 0].argmax()),
        "true_rate_of_best_fixed": float(truth[fixed[:, 0].argmax()] / truth.max()),
        "true_rate_of_best_sequential": float(truth[sequential[:, 0].argmax()] / truth.max()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rows = [one_round(seed) for seed in range(args.rounds)]
    summary = {name: round(float(np.median([row[name] for row in rows])), 4) for name in rows[0]}
    for name in ("same_best", "true_rate_of_best_fixed", "true_rate_of_best_sequential"):
        summary[f"mean {name}"] = round(sum(row[name] for row in rows) / len(rows), 4)
    print(json.dumps({"median": summary, "worst_spearman": min(row["spearman"] for row in rows)}, indent=1))
    if args.out:
        args.out.write_text(json.dumps({"median": summary, "rounds": rows}, indent=1))


if __name__ == "__main__":
    main()
