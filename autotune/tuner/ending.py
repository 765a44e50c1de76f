"""From the race's winner to what is exported: without flags that carry nothing, and proven under the worst load.

winner ─▶ ablation ─▶ soak ─▶ exported
                        └─▶ did not hold: the next best that raced, at last the default
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from autotune.search.budget import OVERRUN, Budget
from autotune.search.race import RaceResult
from autotune.space.config import LaunchConfig
from autotune.store.models import BootRow
from autotune.tuner.ablate import Ablation
from autotune.tuner.finals import Entrant
from autotune.tuner.soak import Soaked, Soaker

WORTH = 0.01
NOTHING_ABLATED = Ablation()


@dataclass(frozen=True, slots=True)
class Ending:
    """``race`` is the one that is published, its ``winner`` what is exported; ``finalists`` ran in it.

    ``notes`` tell of what was tried and did not hold, ``soaked`` is the exported configuration's soak.
    """

    race: RaceResult
    finalists: tuple[Entrant, ...]
    ablation: Ablation = NOTHING_ABLATED
    soaked: Soaked | None = None
    notes: tuple[str, ...] = ()


Ablate = Callable[[Entrant, Sequence[Entrant]], Ablation]


def nobody_refuses(config: LaunchConfig) -> str | None:
    """Everything that raced may be exported."""


class Closer:
    """Brings a race to its end.

    ``ablate`` gets the winner and the incumbents, ``record`` gives the boots so far. ``refuses`` says why a
    configuration must not be exported: what runs in production races whatever its quality.
    """

    def __init__(
        self,
        budget: Budget,
        soaker: Soaker,
        ablate: Ablate,
        record: Callable[[], list[BootRow]],
        say: Callable[[str], None],
        refuses: Callable[[LaunchConfig], str | None] = nobody_refuses,
    ) -> None:
        self._budget = budget
        self._soaker = soaker
        self._ablate = ablate
        self._record = record
        self._say = say
        self._refuses = refuses

    def close(self, race: RaceResult, baseline: Entrant | None, finalists: Sequence[Entrant]) -> Ending:
        """What is exported in the end. Raises ``Interrupted``."""
        ending = Ending(race, tuple(finalists))
        winner = _entrant(finalists, race.winner)
        if winner is not None and winner.role == "finalist":
            ending = self._slim(ending, winner)
        return self._soak(ending, baseline)

    def _slim(self, ending: Ending, winner: Entrant) -> Ending:
        incumbents = [e for e in ending.finalists if e.role == "incumbent"]
        ablation = self._ablate(winner, incumbents)
        notes = (*ending.notes, *([ablation.note] if ablation.note else []))
        if ablation.slimmer is None or ablation.race is None:
            return replace(ending, ablation=ablation, notes=notes)
        raced = (*incumbents, winner, ablation.slimmer)
        return Ending(ablation.race, raced, ablation, notes=notes)

    def _soak(self, ending: Ending, baseline: Entrant | None) -> Ending:
        """The first that holds, of the winner and the others that are proven better than the default."""
        for key in _proven(ending.race, baseline):
            entrant = _entrant(ending.finalists, key)
            if entrant is None:
                continue
            if (why := self._refuses(entrant.config)) is not None:
                note = f"{entrant.name} raced for comparison and is not recommended: {why}"
                ending = replace(ending, notes=(*ending.notes, note))
                continue
            ending = replace(ending, race=replace(ending.race, winner=key))
            if not self._room():
                note = "The budget left no room for a soak at full load and the longest requests."
                return replace(ending, soaked=None, notes=(*ending.notes, note))
            soaked = self._try(entrant.config, entrant.name)
            if soaked.held is not False:
                return replace(ending, soaked=soaked)
            note = f"{entrant.name} did not hold at full load and the longest requests, and is out: {soaked.reason}"
            ending = replace(ending, notes=(*ending.notes, note))
        return replace(ending, race=replace(ending.race, winner=None), soaked=None)

    def _try(self, config: LaunchConfig, name: str) -> Soaked:
        self._say(f"Soak: {self._soaker.seconds:.0f} s at full load and the longest requests on {name}.")
        return self._soaker.run(config, self._record())

    def _room(self) -> bool:
        """A soak's load lasts up to twice its seconds, with its warm-up."""
        budget = self._budget
        needed_s = budget.visit_s - budget.point_s + 2 * self._soaker.seconds
        return budget.seconds is None or budget.spent_s + needed_s <= OVERRUN * budget.seconds


def _proven(race: RaceResult, baseline: Entrant | None) -> list[str]:
    """The winner, then the others that would have won without it, best first; none where nothing won."""
    if race.winner is None:
        return []
    base = baseline.config.key() if baseline else None
    good = [s for s in race.standings if s.runner != base and (base is None or (s.low > 0 and s.gain >= WORTH))]
    others = [s.runner for s in sorted(good, key=lambda s: -s.gain) if s.runner != race.winner]
    return [race.winner, *others]


def _entrant(entrants: Sequence[Entrant], key: str | None) -> Entrant | None:
    return next((e for e in entrants if e.config.key() == key), None)
