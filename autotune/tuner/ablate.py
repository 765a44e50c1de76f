"""Which of the winner's flags carry its gain, and the winner without those that carry nothing.

Every number here is of the race's grade: engines of their own, fresh prompts, whole rounds. First the winner races
against itself with one flag back at the default at a time. What can go, goes at once; the smaller configuration then
races beside the default, the incumbents and the winner, and is taken only where that race says so.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autotune.errors import EnvironmentFault
from autotune.search.ablation import Contribution, contributions, pruned, without_each
from autotune.search.budget import Budget
from autotune.search.noise import NoiseFloor
from autotune.search.race import RaceResult
from autotune.space.config import LaunchConfig
from autotune.store.models import BootRow
from autotune.tuner.finals import LEAST_ROUNDS, Entrant, Finals, Rules

NO_ROOM = "The budget left no room to measure which flags carry the gain."
ABLATION = Rules("ablation", min_rounds=LEAST_ROUNDS, max_rounds=LEAST_ROUNDS, overrun=1.0, worth=0.0)
CHECK = Rules("recheck", min_rounds=LEAST_ROUNDS, max_rounds=LEAST_ROUNDS, overrun=1.0)


@dataclass(frozen=True, slots=True)
class Ablation:
    """``parts`` in falling order of what they carry; ``untested`` flags had no room in the budget.

    ``measured`` is the winner whose flags these are, ``slimmer`` the configuration that takes its place, with the
    ``race`` that says so.
    """

    parts: tuple[Contribution, ...] = ()
    untested: tuple[str, ...] = ()
    measured: Entrant | None = None
    slimmer: Entrant | None = None
    race: RaceResult | None = None
    note: str = ""


class Ablator:
    """Measures one winner's flags. ``order`` lists flags by expected effect, ``record`` gives the boots so far.

    ``keep_s`` of the budget stays for what comes after.
    """

    def __init__(
        self,
        finals: Finals,
        budget: Budget,
        fixed: LaunchConfig,
        order: Sequence[str],
        noise: NoiseFloor,
        record: Callable[[], Sequence[BootRow]],
        name: Callable[[LaunchConfig], Entrant],
        keep_s: float = 0.0,
    ) -> None:
        self._finals = finals
        self._budget = budget
        self._fixed = fixed
        self._order = list(order)
        self._noise = noise
        self._record = record
        self._name = name
        self._keep_s = keep_s

    def run(self, winner: Entrant, baseline: Entrant | None, incumbents: Sequence[Entrant]) -> Ablation:
        """Measure what fits into the budget. Raises ``Interrupted``."""
        variants = {name: c for name, c in without_each(winner.config, self._fixed).items() if self._differs(winner, c)}
        if len(variants) < 2:
            return Ablation()
        recheck = 2 + len(incumbents) + (baseline is not None)
        chosen = self._affordable(sorted(variants, key=self._place), LEAST_ROUNDS * recheck)
        if not chosen:
            return Ablation(untested=tuple(variants), note=NO_ROOM)
        untested = tuple(name for name in variants if name not in chosen)
        try:
            return self._measure(winner, baseline, incumbents, {name: variants[name] for name in chosen}, untested)
        except EnvironmentFault as fault:
            return Ablation(untested=tuple(variants), note=f"The flags could not be measured one by one: {fault}")

    def _measure(
        self,
        winner: Entrant,
        baseline: Entrant | None,
        incumbents: Sequence[Entrant],
        variants: dict[str, LaunchConfig],
        untested: tuple[str, ...],
    ) -> Ablation:
        flags = {config.key(): flag for flag, config in variants.items()}
        entrants = [Entrant(f"without --{flag}", config, 0) for flag, config in variants.items()]
        result = self._finals.run(winner, entrants, self._noise, self._record(), ABLATION)
        if result.rounds < LEAST_ROUNDS:
            return Ablation(untested=(*variants, *untested), note=NO_ROOM)
        parts = contributions(result, winner.config.key(), names=flags)
        smaller = pruned(winner.config, parts)
        if smaller == winner.config:
            return Ablation(parts, untested, winner)
        slimmer = self._name(smaller)
        if not self._differs(slimmer, self._fixed):
            return Ablation(parts, untested, winner)
        race = self._finals.run(baseline, [*incumbents, winner, slimmer], self._noise, self._record(), CHECK)
        held = race.winner == slimmer.config.key()
        return Ablation(parts, untested, winner, slimmer if held else None, race if held else None)

    def _differs(self, one: Entrant, other: LaunchConfig) -> bool:
        return one.config != other

    def _affordable(self, names: list[str], recheck_visits: int) -> list[str]:
        """As many flags as fit, with the winner's own visits and the race that follows."""
        budget = self._budget
        if budget.seconds is None:
            return names
        left_s = budget.seconds - budget.spent_s - self._keep_s - recheck_visits * budget.visit_s
        for count in range(len(names), 0, -1):
            # A variant's first boot may have to compile.
            if left_s >= LEAST_ROUNDS * (count + 1) * budget.visit_s + count * budget.compile_s:
                return names[:count]
        return []

    def _place(self, flag: str) -> int:
        return self._order.index(flag) if flag in self._order else len(self._order)
