"""What is exported at the end, and is it true? Search for a fixed time, choose, and re-measure.

    python benchmarks/search/final.py --seeds 200 --minutes 25

Arms without a race report their best observed number against the observed baseline, as tuners commonly do. Ours
races its finalists and the baseline on fresh load (``autotune.search.race``) and reports the race's number. Two
figures follow: *optimism*, the reported speed over the true one, and *violations*, how often one fresh re-test
of the exported configuration misses an SLO (and how often its true latency does).
"""

import argparse
import json
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass

import numpy as np
from arms import ARMS, MARGIN, SearchArm
from replay import load_truth
from simulate import Clock, SyntheticMachine
from surface import SCENARIOS, Surface

from autotune.search.race import Race, RaceResult, Runner
from autotune.space.config import LaunchConfig


@dataclass(frozen=True, slots=True)
class Export:
    """One run's end. ``reported`` and ``true`` are gains over the default as fractions."""

    scenario: str
    arm: str
    seed: int
    adopted: bool
    reported: float | None
    true: float | None
    inside: bool | None
    retest_missed: bool
    truly_missed: bool
    share: float
    minutes: float
    boots: int


def play(name: str, arm_name: str, seed: int, minutes: float) -> Export:
    """Search, choose, re-measure."""
    truth = load_truth(name)
    arm = ARMS[arm_name](truth, seed)
    clock = Clock(SyntheticMachine(truth), np.random.default_rng((seed, 7)))
    seen: dict[LaunchConfig, float] = {}
    while clock.seconds < 60 * minutes and (suggestion := arm.ask(clock.running)) is not None:
        outcome = clock.run(suggestion)
        arm.tell(suggestion, outcome)
        if outcome.value is not None and not suggestion.live:
            seen[suggestion.target] = outcome.value
    default = LaunchConfig()
    if isinstance(arm, SearchArm) and arm_name.startswith("ours"):
        configs = {o.suggestion.target.key(): o.suggestion.target for o in arm.finalists(3)}
        result = race(clock, configs)
        choice = configs[result.winner] if result.winner else default
        standing = next((s for s in result.standings if s.runner == result.winner), None)
        reported = standing.gain if standing else 0.0
        interval = (standing.low, standing.high) if standing else None
    else:
        choice, interval = arm.incumbent() or default, None
        reported = seen[choice] / seen[default] - 1 if choice in seen else 0.0
    return _export(truth, name, arm_name, seed, choice, reported, interval, clock)


def race(clock: Clock, configs: dict[str, LaunchConfig]) -> RaceResult:
    """The product's final race on the simulated machine; a runner that misses an SLO in a visit is out."""
    runners = [Runner(k, len(c.flags)) for k, c in configs.items()]
    contest = Race(Runner("default", 0), runners)
    while (visit := contest.next()) is not None:
        config = configs.get(visit.runner, LaunchConfig())
        started, _, _ = clock.boot(config)
        if not started:
            contest.drop(visit.runner, "does not start")
            continue
        reading = clock.machine.load(config, config, clock.noise, clock.rng)
        clock.seconds += reading.seconds
        missed = [n for n, v in reading.violations.items() if v > -MARGIN / 2]
        if missed and visit.runner != "default":
            contest.drop(visit.runner, f"missed {missed}")
        else:
            contest.record(visit, reading.value)
    return contest.result()


def _export(
    truth: Surface,
    name: str,
    arm: str,
    seed: int,
    choice: LaunchConfig,
    reported: float,
    interval: tuple[float, float] | None,
    clock: Clock,
) -> Export:
    index, base = truth.index(choice), truth.index(LaunchConfig())
    gain = float(truth.value[index] / truth.value[base] - 1)
    reading = clock.machine.load(choice, choice, clock.machine.boot_noise(choice, clock.rng), clock.rng)
    meets, adopted = truth.meets_slo(index), choice != LaunchConfig()
    return Export(
        name,
        arm,
        seed,
        adopted,
        reported if adopted else None,
        gain if adopted else None,
        interval[0] <= gain <= interval[1] if interval else None,
        adopted and any(v > 0 for v in reading.violations.values()),
        adopted and not meets,
        float(truth.value[index] / truth.best) if meets and truth.fits[index] else 0.0,
        clock.seconds / 60,
        clock.boots,
    )


def _job(job: tuple[str, str, int, float]) -> Export:
    return play(*job)


def table(exports: Sequence[Export]) -> str:
    """One Markdown row per arm over all scenarios."""
    lines = [
        "| arm | exports | median share of best | median optimism | gain in interval | re-test misses | truly misses |"
    ]
    lines.append("|---|---|---|---|---|---|---|")
    for arm in dict.fromkeys(e.arm for e in exports):
        some = [e for e in exports if e.arm == arm]
        slo = [e for e in some if "-itl" in e.scenario or "-ttft" in e.scenario]
        adopted = [e for e in some if e.adopted]
        optimism = (
            np.median([(1 + (e.reported or 0)) / (1 + (e.true or 0)) - 1 for e in adopted]) if adopted else np.nan
        )
        inside = [e.inside for e in adopted if e.inside is not None]
        covered = f"{100 * np.mean(inside):.0f} %" if inside else "-"
        lines.append(
            f"| {arm} | {len(adopted)}/{len(some)} | {np.median([e.share for e in some]):.3f} "
            f"| {100 * optimism:+.1f} % | {covered} | {_percent([e.retest_missed for e in slo])} "
            f"| {_percent([e.truly_missed for e in slo])} |"
        )
    return "\n".join(lines)


def _percent(flags: Sequence[bool]) -> str:
    return f"{100 * np.mean(flags):.1f} %" if flags else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=25)
    parser.add_argument("--arms", nargs="*", default=["planner + random", "ours - SLO margin", "ours"])
    parser.add_argument("--scenarios", nargs="*", default=[s.name for s in SCENARIOS])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out")
    options = parser.parse_args()
    jobs = [(s, a, k, options.minutes) for s in options.scenarios for a in options.arms for k in range(options.seeds)]
    with ProcessPoolExecutor(options.workers) as pool:
        exports = list(pool.map(_job, jobs, chunksize=4))
    print(table(exports))
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(asdict(e)) + "\n" for e in exports)


if __name__ == "__main__":
    main()
