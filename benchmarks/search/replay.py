"""Runs arms on surfaces with a simulated clock and reports how soon each comes near the best.

    python benchmarks/search/replay.py --seeds 200 --out results.jsonl     # play (appends run by run)
    python benchmarks/search/replay.py --report results.jsonl              # tables only

A run ends when its exported choice is truly within 2 % of the best feasible configuration, or at its arm's limit of
simulated GPU time (``LIMITS``). "Within" is judged on the truth, which no arm ever sees. Seeds are paired: seed k has
the same machine noise for every arm. A target that was not reached counts as infinite in medians and quartiles.
"""

import argparse
import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import numpy as np
from arms import ARMS, Truth
from simulate import Clock, Machine, SyntheticMachine
from surface import NOTHING_MATTERS, SCENARIOS, build
from table import MeasuredTable, read

MARKS = (10, 20, 30)
LIMITS = {"ours": 30.0, "GP": 30.0, "TPE": 60.0, "planner + TPE": 60.0}


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
    shares: tuple[float, ...] = ()


@cache
def load_truth(name: str) -> Truth:
    """A synthetic scenario by its name, or a measured table by its file."""
    if name.endswith(".jsonl"):
        return read(Path(name))
    return build(next(s for s in (*SCENARIOS, NOTHING_MATTERS) if s.name == name))


def machine_of(truth: Truth) -> Machine:
    """What boots and loads on this truth."""
    return truth if isinstance(truth, MeasuredTable) else SyntheticMachine(truth)


def replay(name: str, arm_name: str, seed: int, minutes: float) -> Run:
    """Play one run."""
    truth = load_truth(name)
    arm = ARMS[arm_name](truth, seed)
    clock = Clock(machine_of(truth), np.random.default_rng((seed, 7)))
    reached: dict[float, tuple[float, int]] = {}
    share, shares = 0.0, [0.0] * len(MARKS)
    while clock.seconds < 60 * minutes and (suggestion := arm.ask(clock.running)) is not None:
        arm.tell(suggestion, clock.run(suggestion))
        share = truth.share(arm.incumbent())
        shares = [share if clock.seconds <= 60 * mark else kept for mark, kept in zip(MARKS, shares, strict=True)]
        for target in (0.95, 0.98):
            if share >= target and target not in reached:
                reached[target] = (clock.seconds / 60, clock.boots)
        if 0.98 in reached:
            shares = [share if clock.seconds <= 60 * mark else kept for mark, kept in zip(MARKS, shares, strict=True)]
            break
    five, two = reached.get(0.95, (None, None)), reached.get(0.98, (None, None))
    return Run(
        name,
        arm_name,
        seed,
        *five,
        *two,
        clock.trials,
        clock.crashes,
        round(clock.seconds / 60, 3),
        round(share, 4),
        tuple(round(x, 4) for x in shares),
    )


def _limit(arm: str) -> float:
    """GPU-minutes after which a run is given up: long for arms that cost nothing to simulate."""
    return next((m for start, m in LIMITS.items() if arm.startswith(start)), 1200.0)


def _job(job: tuple[str, str, int, float]) -> Run:
    return replay(*job)


def run_all(
    scenarios: Sequence[str], arms: Sequence[str], seeds: range, minutes: float | None, workers: int
) -> Iterator[Run]:
    """All combinations, spread over processes, seed by seed: stopped early, what is done is still paired."""
    jobs = [(s, a, k, minutes or _limit(a)) for k in seeds for a in arms for s in scenarios]
    if workers == 1:
        yield from map(_job, jobs)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(_job, jobs, chunksize=3)


def table(runs: Sequence[Run]) -> str:
    """Markdown: one table per scenario, and one over the tuned-on and one over the held-out scenarios."""
    held = {s.name for s in SCENARIOS if s.held_out}
    names = list(dict.fromkeys(r.scenario for r in runs))
    groups = {"all scenarios": names, "scenarios used while developing": [n for n in names if n not in held]}
    groups |= {"held-out scenarios": [n for n in names if n in held]} | {n: [n] for n in names}
    lines = []
    for title, members in groups.items():
        lines += [
            f"\n### {title}\n",
            "| arm | runs | share at 10 / 20 / 30 min | GPU-min to 5 % | boots | GPU-min to 2 % | boots | crashed |",
        ]
        lines += ["|---|---|---|---|---|---|---|---|"]
        for arm in dict.fromkeys(r.arm for r in runs):
            some = [r for r in runs if r.arm == arm and r.scenario in members]
            lines += [_row(arm, some)] if some else []
    return "\n".join(lines)


def _row(arm: str, runs: Sequence[Run]) -> str:
    crashed = sum(r.crashes for r in runs) / max(sum(r.trials for r in runs), 1)
    share = " / ".join(f"{np.median(column):.3f}" for column in zip(*(r.shares for r in runs), strict=True))
    cells = [_quartiles([getattr(r, f) for r in runs]) for f in ("minutes_5", "boots_5", "minutes_2", "boots_2")]
    return f"| {arm} | {len(runs)} | {share} | {' | '.join(cells)} | {100 * crashed:.1f} % |"


def paired(runs: Sequence[Run], left: str = "ours", right: str = "planner + random") -> str:
    """Seed by seed: GPU-minutes to 5 % of one arm over the other's."""
    by_arm = {(r.arm, r.scenario, r.seed): r.minutes_5 for r in runs}
    ratios = []
    for (arm, scenario, seed), minutes in by_arm.items():
        other = by_arm.get((right, scenario, seed))
        if arm == left and (minutes is not None or other is not None):
            ratios.append(np.inf if minutes is None else 0.0 if other is None else minutes / other)
    third = np.mean([r <= 1 / 3 for r in ratios]) if ratios else np.nan
    head = f"{left} / {right}, minutes to 5 %"
    return f"{head}: median ratio {np.median(ratios):.3f}, at most 1/3 in {100 * third:.0f} % of {len(ratios)} pairs"


def _quartiles(values: Sequence[float | None]) -> str:
    array = np.array([np.inf if v is None else v for v in values])
    low, mid, high = np.quantile(array, [0.25, 0.5, 0.75], method="nearest")
    return f"{_number(mid)} ({_number(low)}-{_number(high)})"


def _number(value: float) -> str:
    return "never" if np.isinf(value) else f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, help="one limit for all arms")
    parser.add_argument("--report")
    parser.add_argument("--arms", nargs="*", default=list(ARMS))
    parser.add_argument("--scenarios", nargs="*", default=[s.name for s in SCENARIOS])
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--out")
    options = parser.parse_args()
    if options.report:
        with open(options.report, encoding="utf-8") as file:
            runs = [Run(**json.loads(line)) for line in file]
    else:
        runs = _play(options)
    print(table(runs))
    print("\n" + paired(runs))


def _play(options: argparse.Namespace) -> list[Run]:
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    runs: list[Run] = []
    with open(options.out, "a", encoding="utf-8") if options.out else nullcontext() as file:
        for run in run_all(options.scenarios, options.arms, seeds, options.minutes, options.workers):
            runs.append(run)
            if file:
                file.write(json.dumps(asdict(run)) + "\n")
                file.flush()
    return runs


if __name__ == "__main__":
    main()
