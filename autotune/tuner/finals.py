"""The end of a study: the default, incumbents and finalists race on fresh load, each on engines of its own.

Only what is measured here is published. Every visit boots anew, in the ordinary way, and gets the round's
fresh prompts, the same for all runners of the round. Visits of an interrupted race count again when the
same runners race on; a round that was left half done is run anew, for its pairs would not be pairs.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from autotune.engine.gates import Strangers, Tenant
from autotune.engine.types import BootFailed
from autotune.report.progress import RunProgress, TrialLine
from autotune.search.budget import OVERRUN, Budget
from autotune.search.noise import NoiseFloor
from autotune.search.race import Race, RaceResult, Runner, Visit
from autotune.space.config import LaunchConfig
from autotune.store.models import BootRow
from autotune.store.recommendation import Role
from autotune.tuner.engines import FINAL, BudgetSpent, Engines
from autotune.tuner.judge import Judge
from autotune.tuner.objective import Objective
from autotune.tuner.points import stored_figure
from autotune.tuner.trials import EngineFailed, TrialRunner

SEED_BASE = 1_000_000_000
MOST_RACES = 100_000_000
LEAST_ROUNDS = 2
MAX_ROUNDS = 4
MOST_TRIES = 2


@dataclass(frozen=True, slots=True)
class Entrant:
    """A configuration that races; ``name`` is what a person sees.

    ``changes`` counts what differs from the default. An incumbent has none: nothing changes where it stays.
    """

    name: str
    config: LaunchConfig
    changes: int
    role: Role = "finalist"


@dataclass(frozen=True, slots=True)
class Rules:
    """How a race is run: its name in the log, its rounds, and what gain is worth a change.

    ``overrun`` is the share of the budget that its first two rounds may take, without which it is worth nothing.
    """

    name: str = "race"
    min_rounds: int = LEAST_ROUNDS
    max_rounds: int = MAX_ROUNDS
    overrun: float = OVERRUN
    worth: float = 0.01


FINAL_RACE = Rules()


class Finals:
    """Races entrants against the default, in the objective's value or in one of its aspects."""

    def __init__(
        self,
        engines: Engines,
        trials: TrialRunner,
        judge: Judge,
        budget: Budget,
        progress: RunProgress,
        objective: Objective,
        report_budget: Callable[[], None],
        strangers: Callable[[], Strangers],
        aspect: str = "",
    ) -> None:
        self._engines = engines
        self._trials = trials
        self._judge = judge
        self._budget = budget
        self._progress = progress
        self._objective = objective
        self._aspect = aspect
        self._report_budget = report_budget
        self._strangers = strangers
        self._told_of_strangers = False

    def run(
        self,
        baseline: Entrant | None,
        finalists: Sequence[Entrant],
        noise: NoiseFloor,
        earlier: Sequence[BootRow],
        rules: Rules = FINAL_RACE,
    ) -> RaceResult:
        """The race's result; it ends early where the budget does. ``finalists`` holds incumbents as well."""
        entrants = {e.config.key(): e for e in [*([baseline] if baseline else []), *finalists]}
        race = Race(
            _runner(baseline) if baseline else None,
            [_runner(f) for f in finalists],
            direction=self._objective.direction,
            noise=noise,
            worth=max(rules.worth, self._objective.worth) if rules.worth else 0.0,
            min_rounds=rules.min_rounds,
            max_rounds=rules.max_rounds,
            rivals=[e.config.key() for e in finalists if e.role == "incumbent"],
        )
        first_seed = _first_seed(entrants)
        if _replay(race, entrants, earlier, first_seed, self._aspect):
            self._judge.success()
        failed: Counter[Visit] = Counter()
        while (visit := race.next()) is not None and (length := self._length(race, visit, rules)):
            strangers = self._strangers()
            try:
                entrant, seed = entrants[visit.runner], first_seed + visit.round
                value, reason, final = self._visit(visit, entrant, seed, rules, brief=length == "brief")
            except BudgetSpent:
                break
            if tenant := strangers.tenant():
                race.disturb()
                self._tell_of(tenant)
            if value is not None:
                race.record(visit, value)
                continue
            failed[visit] += 1
            if final or failed[visit] >= MOST_TRIES:
                race.drop(visit.runner, f"no figure in the race: {reason}")
        return race.result()

    def _tell_of(self, tenant: Tenant) -> None:
        if not self._told_of_strangers:
            self._progress.note(f"Note: {tenant.text}. Only a large gain ends the race before its last round.")
        self._told_of_strangers = True

    def _length(self, race: Race, visit: Visit, rules: Rules) -> Literal["full", "brief"] | None:
        """How long a visit's point may last so that the rest of its round fits; None where it does not.

        Only whole rounds count, and to begin a third one is a luxury. The first two are worth shorter points: without
        them all that was searched is lost.
        """
        left = race.left_in_round(visit.round)
        needed = visit.round < LEAST_ROUNDS or left < race.runners
        share = rules.overrun if needed else 1.0
        if self._budget.allows_visits(left, share):
            return "full"
        return "brief" if needed and self._budget.allows_visits(left, share, brief=True) else None

    def _visit(
        self, visit: Visit, entrant: Entrant, seed: int, rules: Rules, *, brief: bool
    ) -> tuple[float | None, str, bool]:
        """One engine, one point: its value, else the reason, and whether that is the configuration's fault."""
        try:
            with self._engines.boot(entrant.config, role=FINAL) as running:
                point = self._trials.point(running, seed, f"race-{seed}", race=True, brief=brief)
                boot_s = running.boot_s
        except (BootFailed, EngineFailed) as error:
            outcome = self._judge.outcome(error.failure, 0.0, entrant.config.key())
            self._show(visit, entrant, None, None, outcome.reason, rules)
            return None, outcome.reason, outcome.status == "infeasible"
        self._judge.success()
        value, reason = point.figure(self._aspect), point.problem or point.missed_in(self._aspect)
        self._show(visit, entrant, value, boot_s, reason, rules)
        return value, reason, not point.problem and value is None

    def _show(
        self, visit: Visit, entrant: Entrant, value: float | None, boot_s: float | None, reason: str, rules: Rules
    ) -> None:
        line = TrialLine(
            label=f"{rules.name} {visit.round + 1}",
            config=entrant.name,
            status="failed",
            value=value,
            unit=self._objective.unit,
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


def _replay(
    race: Race, entrants: Mapping[str, Entrant], earlier: Sequence[BootRow], first_seed: int, aspect: str
) -> int:
    """Give the race the whole rounds that an interrupted race of the same runners left; how many there were."""
    done = {
        (boot.config_key, point.prompt_seed - first_seed): figure
        for boot in earlier
        for point in boot.points
        if boot.role == FINAL and boot.failure is None and (figure := stored_figure(point, aspect)) is not None
    }
    number = 0
    while number < MAX_ROUNDS and all((key, number) in done for key in entrants):
        for key in entrants:
            race.record(Visit(key, number), done[key, number])
        number += 1
    return number
