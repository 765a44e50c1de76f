"""A night in which nothing has changed: one look at the incumbent, a second one only if the first looks odd.

The number is compared with the record. Two nights differ by the machine's mood, so less than ``MARGIN`` beside the
record's own interval says nothing. A machine that has become slower by itself is no reason to change a
configuration: it is said, and left to a person.
"""

import math
from collections.abc import Callable
from typing import Any

from autotune.errors import EnvironmentFault, Interrupted
from autotune.report.progress import RunProgress
from autotune.retune.arms import Arm, Side, Visits
from autotune.retune.compare import MARGIN, Comparison
from autotune.retune.incumbent import Incumbent
from autotune.retune.night import NEW
from autotune.retune.report import Report
from autotune.search.noise import PRIOR
from autotune.store.recommendation import Interval
from autotune.store.store import Store
from autotune.tuner.plan import Plan
from autotune.tuner.stop import StopFlag

MOST_BOOTS = 2


def look_again(
    plan: Plan,
    incumbent: Incumbent,
    store: Store,
    progress: RunProgress,
    stop: StopFlag,
    visits: Visits,
    report: Callable[..., Report],
) -> Report:
    """At most ``MOST_BOOTS`` boots. Raises ``Interrupted`` where a person stopped it."""
    arm = Arm(NEW, Side(plan, store, progress, stop), incumbent.recommendation.config)
    looks = Comparison([NEW], noise=PRIOR, max_rounds=MOST_BOOTS)
    record = incumbent.recommendation.best
    notes: list[str] = []
    visits.most_boots = MOST_BOOTS
    try:
        visits.play([arm], looks, lambda: record is None or _near(looks.value(NEW), record))
    except Interrupted:
        if not visits.deadline.hit:
            raise
        notes.append("The time was over before the incumbent was measured.")
    except EnvironmentFault as error:
        notes.append(f"The machine was at fault: {error}")
    return report(**_found(looks, record, visits, notes))


def _found(looks: Comparison, record: Interval | None, visits: Visits, notes: list[str]) -> dict[str, Any]:
    value = looks.value(NEW) if looks.rounds else None
    found: dict[str, Any] = {
        "notes": tuple(notes),
        "values": {} if value is None else {NEW: value},
        "rounds": looks.rounds,
        "boots": visits.boots,
        "spent_s": round(visits.deadline.spent_s, 1),
    }
    if value is None:
        why = visits.failed.get(NEW) or visits.unmeasured.get(NEW, "it was not measured")
        return {**found, "verdict": "undecided", "reasons": (f"Nothing has changed, and yet: {why}.",)}
    if record is None or _near(value, record):
        return {**found, "verdict": "equal", "reasons": ("Nothing has changed, and the incumbent runs as recorded.",)}
    change = 100 * (value / record.value - 1)
    reason = (
        f"vLLM, model, driver and machine are the same, and yet the incumbent gave {change:+.1f} % of its record: "
        "look for other work on this machine, heat or a power limit."
    )
    return {**found, "verdict": "undecided", "reasons": (reason,)}


def _near(value: float, record: Interval) -> bool:
    half = math.log(record.high / max(record.low, 1e-9)) / 2
    return abs(math.log(value / record.value)) <= math.hypot(math.log1p(-MARGIN), half)
