"""How a study's budget is shared out: what is measured, raced and kept back, by what boots and points took here."""

from collections.abc import Callable, Sequence

from autotune.search.budget import Budget
from autotune.store.models import BootRow
from autotune.tuner.engines import FINAL, PLAIN, record_boot
from autotune.tuner.finals import LEAST_ROUNDS
from autotune.tuner.plan import Plan
from autotune.tuner.points import RACE_LONGEST, SEARCH_LONGEST, window_s

MOST_FINALISTS = 2
RACE_SHARE = 0.35
LEAST_TRIALS = 3


def study_budget(
    plan: Plan, boots: Sequence[BootRow], before_s: float, trials_done: int, clock: Callable[[], float]
) -> Budget:
    """The study's budget after ``before_s`` seconds and ``trials_done``; ``boots`` are what forecasts rest on."""
    budget = Budget(
        seconds=plan.settings.budget_s,
        trials=_trials(plan),
        race_visits=race_visits(MOST_FINALISTS, given(plan)),
        least_trials=given(plan) + LEAST_TRIALS,
        race_extra_s=RACE_LONGEST * window_s(plan, race=True) - SEARCH_LONGEST * window_s(plan, race=False),
        before_s=before_s,
        trials_done=trials_done,
        points_s=[p.duration_s for b in boots if b.role not in PLAIN for p in b.points],
        race_points_s=[p.duration_s for b in boots if b.role == FINAL for p in b.points],
        stops_s=[b.stop_s for b in boots if b.stop_s is not None],
        clock=clock,
    )
    for boot in boots:
        if boot.boot_s is not None and boot.phases_s:
            record_boot(budget, boot.kind, boot.boot_s, boot.phases_s)
        elif boot.boot_s is not None:
            budget.lost_boot(boot.boot_s)
    return budget


def _trials(plan: Plan) -> int | None:
    """What runs in production is not what a person wants to have searched; without a search it goes to the race."""
    asked = plan.settings.trials
    return asked + len(plan.incumbents) if asked else asked


def given(plan: Plan) -> int:
    """Configurations that are measured and raced whatever the search finds: the default and the incumbents."""
    return 1 + len(plan.incumbents)


def race_visits(finalists: int, given: int = 1) -> int:
    """Boots that a race of two rounds takes: each finalist, the default and the incumbents (``given``), twice."""
    return LEAST_ROUNDS * (finalists + given)


def finalists_for(budget: Budget, given: int = 1) -> int:
    """As many finalists as a fair share of the budget can race beside those given, at least one."""
    affordable = [
        count
        for count in range(2, MOST_FINALISTS + 1)
        if budget.seconds is None or race_visits(count, given) * budget.visit_s <= RACE_SHARE * budget.seconds
    ]
    return max(affordable, default=1)
