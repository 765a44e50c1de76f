"""Runs arms on surfaces with a simulated clock and reports how soon each comes near the best.

    python benchmarks/search/replay.py --seeds 200 --out benchmarks/search/results.json

A run ends when its exported choice is truly within 2 % of the best feasible configuration, or at ``--minutes``
of simulated GPU time. "Within" is judged on the truth, which no arm ever sees. Seeds are paired: seed k has
the same machine noise for every arm.
"""

import argparse
import json
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache

import numpy as np
from arms import ARMS
from simulate import Clock, SyntheticMachine
from surface import SCENARIOS, Surface, build


@dataclass(frozen=True, slots=True)
class Run:
    """One arm on one surface with one seed; minutes and boots are None where the target was not reached."""

    scenario: str
    arm: str
    seed: int
    minutes_5: float | None
    boots_5: int | None
    minutes_2: float | None
    boots_2: int | None
    trials: int
    crashes: int
    minutes: float
    share: float


@cache
def surface(name: str) -> Surface:
    return build(next(s for s in SCENARIOS if s.name == name))


def replay(name: str, arm_name: str, seed: int, minutes: float) -> Run:
    """Play one run."""
    truth = surface(name)
    arm = ARMS[arm_name](truth, seed)
    clock = Clock(SyntheticMachine(truth), np.random.default_rng((seed, 7)))
    reached: dict[float, tuple[float, int]] = {}
    share = 0.0
    while clock.seconds < 60 * minutes and (suggestion := arm.ask(clock.running)) is not None:
        arm.tell(suggestion, clock.run(suggestion))
        share = quality(truth, arm.incumbent())
        for target in (0.95, 0.98):
            if share >= target and target not in reached:
                reached[target] = (clock.seconds / 60, clock.boots)
        if 0.98 in reached:
            break
    five, two = reached.get(0.95, (None, None)), reached.get(0.98, (None, None))
    return Run(
        name, arm_name, seed, *five, *two, clock.trials, clock.crashes, round(clock.seconds / 60, 3), round(share, 4)
    )


def quality(truth: Surface, config: object) -> float:
    """True value of a choice over the best feasible; 0 where it does not start or misses an SLO."""
    if config is None:
        return 0.0
    index = truth.index(config)
    return float(truth.value[index] / truth.best) if truth.fits[index] and truth.meets_slo(index) else 0.0


def _job(job: tuple[str, str, int, float]) -> Run:
    return replay(*job)


def run_all(scenarios: Sequence[str], arms: Sequence[str], seeds: int, minutes: float, workers: int) -> list[Run]:
    """All combinations, spread over processes."""
    jobs = [(s, a, k, minutes) for s in scenarios for a in arms for k in range(seeds)]
    if workers == 1:
        return [_job(j) for j in jobs]
    with ProcessPoolExecutor(workers) as pool:
        return list(pool.map(_job, jobs, chunksize=4))


def table(runs: Sequence[Run]) -> str:
    """A Markdown table per scenario: medians with quartiles, never-reached counted as infinite."""
    lines = []
    for scenario in dict.fromkeys(r.scenario for r in runs):
        lines += [f"\n### {scenario}\n", "| arm | GPU-min to 5 % | boots | GPU-min to 2 % | boots | crashed |"]
        lines += ["|---|---|---|---|---|---|"]
        for arm in dict.fromkeys(r.arm for r in runs):
            some = [r for r in runs if r.arm == arm and r.scenario == scenario]
            if some:
                crashed = sum(r.crashes for r in some) / max(sum(r.trials for r in some), 1)
                cells = [
                    _quartiles([getattr(r, f) for r in some]) for f in ("minutes_5", "boots_5", "minutes_2", "boots_2")
                ]
                lines.append(f"| {arm} | {' | '.join(cells)} | {100 * crashed:.1f} % |")
    return "\n".join(lines)


def _quartiles(values: Sequence[float | None]) -> str:
    array = np.array([np.inf if v is None else v for v in values])
    low, mid, high = np.quantile(array, [0.25, 0.5, 0.75], method="nearest")
    return f"{_number(mid)} ({_number(low)}-{_number(high)})"


def _number(value: float) -> str:
    return "never" if np.isinf(value) else f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=240)
    parser.add_argument("--arms", nargs="*", default=list(ARMS))
    parser.add_argument("--scenarios", nargs="*", default=[s.name for s in SCENARIOS])
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--out")
    options = parser.parse_args()
    runs = run_all(options.scenarios, options.arms, options.seeds, options.minutes, options.workers)
    print(table(runs))
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(asdict(r)) + "\n" for r in runs)


if __name__ == "__main__":
    main()
