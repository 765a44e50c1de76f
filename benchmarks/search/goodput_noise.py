"""How often does a race of goodput crown noise, and hold the truth, by the spread that is assumed between engines?

    python benchmarks/search/goodput_noise.py --races 1000

One finalist against the default, up to four rounds, at several true spreads and gains.
"""

import argparse
import math
from statistics import fmean

import numpy as np

from autotune.search.noise import noise_floor
from autotune.search.race import Race, RaceResult, Runner
from autotune.tuner.objectives import Goodput

BEFORE = 0.05


def race(sigma: float, gain: float, assumed: float, rng: np.random.Generator) -> RaceResult:
    """One race whose visits spread by ``sigma`` around rates of 1 and 1 + ``gain``."""
    block = [math.exp(rng.normal(0, sigma)) for _ in range(Goodput.blocks)]
    noise = noise_floor([block], assumed)
    running = Race(Runner("default", 0), [Runner("other", 1)], noise=noise, worth=Goodput.worth)
    truth = {"default": 0.0, "other": math.log1p(gain)}
    while (visit := running.next()) is not None:
        running.record(visit, math.exp(truth[visit.runner] + rng.normal(0, sigma)))
    return running.result()


def main() -> None:
    """Play and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--races", type=int, default=1000)
    parser.add_argument("--window", type=float, default=3.0, help="seconds of the windows, which set today's spread")
    options = parser.parse_args()
    now = Goodput(slos=()).noise(options.window)
    print(
        "| true spread | true gain | assumed | adopted | interval holds the truth | rounds |\n|---|---|---|---|---|---|"
    )
    for sigma in (0.05, 0.08, 0.12):
        for gain in (0.0, 0.15, 1.0):
            for assumed in (BEFORE, now):
                rng = np.random.default_rng(1)
                found = [race(sigma, gain, assumed, rng) for _ in range(options.races)]
                adopted = fmean(r.verdict == "adopt" for r in found)
                held = fmean(s.low <= gain <= s.high for r in found for s in r.standings if s.runner == "other")
                rounds = fmean(r.rounds for r in found)
                print(f"| {sigma:.0%} | {gain:+.0%} | {assumed:.1%} | {adopted:.1%} | {held:.1%} | {rounds:.1f} |")


if __name__ == "__main__":
    main()
