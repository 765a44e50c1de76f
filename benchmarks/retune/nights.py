"""Replays nights of ``autotune retune`` on simulated machines: false alarms, power, rounds.

    python benchmarks/retune/nights.py --nights 1000 > benchmarks/retune/results/nights.txt

A visit is the truth of its arm times a drift that the round's arms share times noise of its own. Noise levels: 0.6 %
(several loads on a quiet GPU), 1.8 % (between boots of graph configurations, measured on an H200), 2.5 to 5.4 % (eager
engines, and a machine that others use).
"""

import argparse
import math
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from autotune.retune.compare import Comparison, Contrast

NOISE = (0.006, 0.012, 0.018, 0.025, 0.03, 0.054)
CHANGES = (0.0, -0.03, -0.05, -0.10, -0.30, 0.05)
DRIFT = 0.05


def night(rng: np.random.Generator, noise: float, change: float, arms: int) -> Contrast:
    """One night's answer on the new version against the old one."""
    truth = dict(list({"old": 1.0, "new": 1.0 + change, "default": 0.7}.items())[:arms])
    comparison = Comparison(list(truth))
    while True:
        number, drift = comparison.rounds, rng.normal(0, DRIFT)
        for arm in comparison.order(number):
            comparison.record(arm, number, 1000 * truth[arm] * math.exp(drift + rng.normal(0, noise)))
        found = comparison.contrast("new", "old")
        if found.answer != "undecided" or comparison.full:
            return found


def row(case: tuple[int, float, float, int]) -> str:
    """One line of the table."""
    arms, noise, change, nights = case
    rng = np.random.default_rng([arms, round(noise * 1e4), round(change * 1e4) % 10_000])
    found = [night(rng, noise, change, arms) for _ in range(nights)]
    counts = Counter(f.answer for f in found)
    shares = " ".join(f"{100 * counts[a] / nights:7.1f}" for a in ("slower", "equal", "faster", "undecided"))
    return f"{arms:4d} {100 * noise:6.1f} {100 * change:+7.1f}   {shares}   {np.mean([f.rounds for f in found]):6.1f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nights", type=int, default=1000)
    nights = parser.parse_args().nights
    cases = [(arms, noise, change, nights) for arms in (2, 3) for noise in NOISE for change in CHANGES]
    print(f"{nights} nights a line; shares in per cent")
    print("arms noise%  true%    slower   equal  faster undecid.   rounds")
    with ProcessPoolExecutor(max_workers=2) as pool:
        for line in pool.map(row, cases):
            print(line, flush=True)


if __name__ == "__main__":
    main()
