"""One re-tune from first boot to last: compare, search a little, confirm.

    incumbent on old ┐                                        ┌ incumbent on old
    incumbent on new ┼─▶ rounds in turns ─▶ short search ─▶   ┼ best so far on new   ─▶ rounds in turns ─▶ evidence
    default on new   ┘   until decided      warm-started      └ what the search found

The first rounds answer whether the upgrade costs or brings something. The search starts from the incumbent and from
earlier trials that still mean the same, and runs only in the time that the first question left. What it finds counts
only after it has won on fresh prompts against the best of the first rounds. Nothing is decided here: see ``verdict``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from autotune.report.progress import RunProgress
from autotune.retune.arms import Arm, Side, Visits
from autotune.retune.compare import MIN_ROUNDS, Comparison
from autotune.retune.deadline import Deadline
from autotune.search.domain import Domain
from autotune.search.noise import NoiseFloor
from autotune.space.config import LaunchConfig
from autotune.space.parameters import SearchSpace
from autotune.store.store import Store
from autotune.tuner.plan import Plan
from autotune.tuner.session import Session
from autotune.tuner.stop import StopFlag
from autotune.tuner.tune import Tuner

OLD, NEW, DEFAULT, FOUND = "incumbent on old", "incumbent on new", "default on new", "new config"
# A search needs its baseline and the incumbent before it can find anything.
LEAST_TRIALS = 4
CONFIRM_ROUNDS = 6


@dataclass(slots=True)
class Evidence:
    """What a night has measured so far; it is filled as things happen, so that a stop leaves what there is.

    ``arms`` holds the config behind each name that raced. ``confirmed`` is None where nothing was found to confirm.
    ``failed`` and ``unmeasured`` say why an arm is out, as ``Visits`` does.
    """

    upgrade: Comparison
    arms: dict[str, LaunchConfig]
    confirmed: Comparison | None = None
    failed: dict[str, str] = field(default_factory=dict)
    unmeasured: dict[str, str] = field(default_factory=dict)
    boot_s: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    searched: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a night is to find out. ``old`` is None where the old version is not here any more.

    ``before`` is the incumbent as the old version takes it, ``after`` as the new one does; ``seeds`` are earlier
    configurations that are worth another look. ``search`` allows a search.
    """

    new: Plan
    old: Plan | None
    before: LaunchConfig
    after: LaunchConfig
    seeds: Sequence[LaunchConfig]
    noise: NoiseFloor
    search: bool


class Night:
    """Runs one question within a deadline; ``evidence`` may be read at any time."""

    def __init__(
        self,
        question: Question,
        store: Store,
        progress: RunProgress,
        stop: StopFlag,
        deadline: Deadline,
        visits: Visits,
        sign: float,
    ) -> None:
        self._question = question
        self._store = store
        self._progress = progress
        self._stop = stop
        self._deadline = deadline
        self._visits = visits
        self._sign = sign
        self._arms = self._all_arms()
        comparison = Comparison(list(self._arms), noise=question.noise, sign=sign)
        self.evidence = Evidence(
            comparison,
            {name: arm.config for name, arm in self._arms.items()},
            failed=visits.failed,
            unmeasured=visits.unmeasured,
            boot_s=visits.boot_s,
        )

    def run(self) -> None:
        """Fill ``evidence``. Raises ``Interrupted`` where a stop was asked for, ``EnvironmentFault``."""
        upgrade = self.evidence.upgrade
        self._visits.play(list(self._arms.values()), upgrade, self._upgrade_decided)
        if self._question.search:
            self._look_for_more()

    def best_so_far(self) -> str:
        """The arm on the new version to beat: the default where it is proven better than the incumbent."""
        upgrade = self.evidence.upgrade
        if NEW not in upgrade.arms:
            return DEFAULT if DEFAULT in upgrade.arms else NEW
        return DEFAULT if upgrade.contrast(DEFAULT, NEW).answer == "faster" else NEW

    def _all_arms(self) -> dict[str, Arm]:
        question = self._question
        new = Side(question.new, self._store, self._progress, self._stop)
        arms = [Arm(NEW, new, question.after)]
        if question.old is not None:
            arms.insert(0, Arm(OLD, Side(question.old, self._store, self._progress, self._stop), question.before))
        if question.after.flags or question.after.env:
            arms.append(Arm(DEFAULT, new, LaunchConfig()))
        return {arm.name: arm for arm in arms}

    def _upgrade_decided(self) -> bool:
        upgrade = self.evidence.upgrade
        if NEW not in upgrade.arms:
            return True
        if OLD not in upgrade.arms:
            return upgrade.rounds >= MIN_ROUNDS
        if self.best_so_far() == DEFAULT and upgrade.contrast(DEFAULT, OLD).answer in ("faster", "equal"):
            return True
        return upgrade.contrast(NEW, OLD).answer != "undecided"

    def _look_for_more(self) -> None:
        reserve_s = 3 * MIN_ROUNDS * self._visits.visit_s
        for_search_s = self._deadline.left_s - reserve_s
        if for_search_s < LEAST_TRIALS * self._visits.visit_s or not self._visits.took_s:
            self.evidence.notes.append("There was no time left to search for a better configuration.")
            return
        self._progress.note(f"Searching on the new version for {for_search_s:.0f} s, from the incumbent on.")
        self.evidence.searched = True
        found = self._search(for_search_s)
        if found is None:
            self.evidence.notes.append("The search found nothing that could be better than the incumbent.")
            return
        self._confirm(found)

    def _search(self, budget_s: float) -> LaunchConfig | None:
        """The most promising configuration that is not the incumbent itself, if there is one."""
        question, plan = self._question, self._question.new
        seeds = (*_expressible(plan.space, (question.after, *question.seeds)), *plan.space.seeds)
        settings = replace(plan.settings, budget_s=budget_s, trials=None)
        plan = replace(plan, study=search_study(plan), settings=settings, space=replace(plan.space, seeds=seeds))
        tuner = Tuner(plan, Session.open(plan, self._store), self._progress, self._stop)
        full = plan.space.fixed.merged(question.after)
        found = tuner.explore(rival=full)
        return None if found is None else LaunchConfig.of(_beyond(found, plan.space.fixed), dict(found.env))

    def _confirm(self, found: LaunchConfig) -> None:
        rival = self.best_so_far()
        names = [name for name in (OLD, rival) if name in self.evidence.upgrade.arms]
        arms = [self._arms[name] for name in names]
        arms.append(Arm(FOUND, self._arms[NEW].side, found))
        self.evidence.arms[FOUND] = found
        confirmed = Comparison(
            [arm.name for arm in arms], noise=self._question.noise, max_rounds=CONFIRM_ROUNDS, sign=self._sign
        )
        self.evidence.confirmed = confirmed
        against = names[-1] if names else FOUND
        self._progress.note(f"Found: {found}. It has to win on fresh prompts against {against}.")
        self._visits.play(arms, confirmed, lambda: _settled(confirmed, against))


def _expressible(space: SearchSpace, configs: Sequence[LaunchConfig]) -> list[LaunchConfig]:
    """Those that the space has words for; a search cannot start from others."""
    domain = Domain(space, space.defaults, space.seeds)
    whole = [(config, space.fixed.merged(config)) for config in configs]
    return [config for config, full in whole if domain.config(domain.assignment(full)) == full]


def old_study(new: Plan) -> str:
    """The name under which the old version's engines run: leftovers of a killed night are found by it."""
    return f"{new.study}-old"


def search_study(new: Plan) -> str:
    """The name of the night's search."""
    return f"{new.study}-search"


def _settled(confirmed: Comparison, against: str) -> bool:
    if FOUND not in confirmed.arms:
        return True
    if against not in confirmed.arms or against == FOUND:
        return confirmed.rounds >= MIN_ROUNDS
    return confirmed.contrast(FOUND, against).answer != "undecided"


def _beyond(config: LaunchConfig, fixed: LaunchConfig) -> dict[str, bool | int | float | str]:
    """The flags of ``config`` that are not those that every engine is given anyway."""
    return {name: value for name, (_, value) in config.differences(fixed).items() if value is not None}
