"""The end of a study: finalists and the default race on fresh load, each on engines of its own.

Only what is measured here is published. Every visit boots anew, in the ordinary way, and gets the round's
fresh prompts, the same for all runners of the round. Visits of an interrupted race count again when the
same runners race on; a round that was left half done is run anew, for its pairs would not be pairs.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from autotune.engine.types import BootFailed
from autotune.report.progress import RunProgress, TrialLine
from autotune.search.budget import Budget
from autotune.search.noise import NoiseFloor
from autotune.search.race import Race, RaceResult, Runner, Visit
from autotune.space.config import LaunchConfig
from autotune.store.models import BootRow
from autotune.tuner.engines import FINAL, Engines
from autotune.tuner.judge import Judge
from autotune.tuner.trials import EngineFailed, TrialRunner

SEED_BASE = 1_000_000_000
MOST_RACES = 100_000_000
MAX_ROUNDS = 4
MOST_TRIES = 2


@dataclass(frozen=True, slots=True)
class Entrant:
    """A configuration that races; ``name`` is what a person sees."""

    name: str
    config: LaunchConfig
    changes: int


class Finals:
    """Races entrants against the default."""

    def __init__(
        self,
        engines: Engines,
        trials: TrialRunner,
        judge: Judge,
        budget: Budget,
        progress: RunProgress,
        unit: str,
        report_budget: Callable[[], None],
    ) -> None:
        self._engines = engines
        self._trials = trials
        self._judge = judge
        self._budget = budget
        self._progress = progress
        self._unit = unit
        self._report_budget = report_budget

    def run(
        self, baseline: Entrant | None, finalists: Sequence[Entrant], noise: NoiseFloor, earlier: Sequence[BootRow]
    ) -> RaceResult:
        """The race's result; it ends early where the budget does."""
        entrants = {e.config.key(): e for e in [*([baseline] if baseline else []), *finalists]}
        race = Race(
            _runner(baseline) if baseline else None,
            [_runner(f) for f in finalists],
            noise=noise,
            max_rounds=MAX_ROUNDS,
        )
        first_seed = _first_seed(entrants)
        if _replay(race, entrants, earlier, first_seed):
            self._judge.success()
        failed: Counter[Visit] = Counter()
        while (visit := race.next()) is not None and self._budget.allows_visit():
            value, reason, final = self._visit(visit, entrants[visit.runner], first_seed + visit.round)
            if value is not None:
                race.record(visit, value)
                continue
            failed[visit] += 1
            if final or failed[visit] >= MOST_TRIES:
                race.drop(visit.runner, f"not measured in the race: {reason}")
        return race.result()

    def _visit(self, visit: Visit, entrant: Entrant, seed: int) -> tuple[float | None, str, bool]:
        """One engine, one point: its value, else the reason, and whether that is the configuration's fault."""
        try:
            with self._engines.boot(entrant.config, role=FINAL) as running:
                point = self._trials.point(running, seed, f"race-{seed}", race=True)
                boot_s = running.boot_s
        except (BootFailed, EngineFailed) as error:
            outcome = self._judge.outcome(error.failure, 0.0, entrant.config.key())
            self._show(visit, entrant, None, None, outcome.reason)
            return None, outcome.reason, outcome.status == "infeasible"
        self._judge.success()
        self._show(visit, entrant, point.value, boot_s, point.problem)
        return point.value, point.problem, False

    def _show(self, visit: Visit, entrant: Entrant, value: float | None, boot_s: float | None, reason: str) -> None:
        line = TrialLine(
            label=f"race {visit.round + 1}",
            config=entrant.name,
            status="failed",
            value=value,
            unit=self._unit,
            ratio=None,
            boot_s=boot_s,
            reason=reason,
        )
        self._progress.trial(line)
        self._report_budget()


def _runner(entrant: Entrant) -> Runner:
    return Runner(entrant.config.key(), entrant.changes)


def _first_seed(entrants: Mapping[str, Entrant]) -> int:
    """The prompt seed of a race's first round: other runners, other seeds."""
    digest = hashlib.sha256(" ".join(sorted(entrants)).encode()).hexdigest()
    return SEED_BASE + int(digest, 16) % MOST_RACES * MAX_ROUNDS


def _replay(race: Race, entrants: Mapping[str, Entrant], earlier: Sequence[BootRow], first_seed: int) -> int:
    """Give the race the whole rounds that an interrupted race of the same runners left; how many there were."""
    done = {
        (boot.config_key, point.prompt_seed - first_seed): point.value
        for boot in earlier
        for point in boot.points
        if boot.role == FINAL and boot.failure is None and point.value is not None
    }
    number = 0
    while number < MAX_ROUNDS and all((key, number) in done for key in entrants):
        for key in entrants:
            race.record(Visit(key, number), done[key, number])
        number += 1
    return number
