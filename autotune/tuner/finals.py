"""The end of a study: finalists and the default race on fresh load, each on engines of its own.

Only what is measured here is published. Every visit boots anew, in the ordinary way, and gets the round's
fresh prompts, the same for all runners of the round. Visits of an interrupted race count again when the
same runners race on; a round that was left half done is run anew, for its pairs would not be pairs.
"""

from collections.abc import Callable, Sequence
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
MAX_ROUNDS = 4


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
        _replay(race, entrants, earlier)
        while (visit := race.next()) is not None and self._budget.allows_visit():
            self._visit(race, visit, entrants[visit.runner])
        return race.result()

    def _visit(self, race: Race, visit: Visit, entrant: Entrant) -> None:
        """One engine, one point. What fails for the configuration's sake leaves the race."""
        try:
            with self._engines.boot(entrant.config, role=FINAL) as running:
                point = self._trials.point(running, SEED_BASE + visit.round, f"race-{visit.round}", race=True)
                boot_s = running.boot_s
        except (BootFailed, EngineFailed) as error:
            outcome = self._judge.outcome(error.failure, 0.0, entrant.config.key())
            if outcome.status == "infeasible":
                race.drop(visit.runner, outcome.reason)
            self._show(visit, entrant, None, None, outcome.reason)
            return
        self._judge.success()
        self._show(visit, entrant, point.value, boot_s, point.problem)
        if point.value is None:
            race.drop(visit.runner, f"not measured in the race: {point.problem}")
        else:
            race.record(visit, point.value)

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


def _replay(race: Race, entrants: dict[str, Entrant], earlier: Sequence[BootRow]) -> None:
    """Give the race the whole rounds that an interrupted race of the same runners left."""
    done = {
        (boot.config_key, point.prompt_seed - SEED_BASE): point.value
        for boot in earlier
        for point in boot.points
        if boot.role == FINAL and point.value is not None
    }
    number = 0
    while all((key, number) in done for key in entrants):
        for key in entrants:
            race.record(Visit(key, number), done[key, number])
        number += 1
