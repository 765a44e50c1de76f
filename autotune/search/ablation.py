"""Which flags carry the gain, and which can go: the winner without each of its flags, raced against the winner.

    variants = without_each(winner, fixed)                  # visited as "winner" and by their flags' names
    race = Race(Runner("winner", 0), [Runner(name, 0) for name in variants], worth=0.0, min_rounds=2, max_rounds=2)
    …                                                       # visit and record as in the final race
    parts = contributions(race.result(), "winner")
    smaller = pruned(winner, parts)                         # race it against the winner before it is exported

Effects measured one flag at a time do not add up where flags interact, so the smaller configuration is a
proposal: it replaces the winner only after it held in a race of its own.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.search.race import RaceResult
from autotune.space.config import LaunchConfig


@dataclass(frozen=True, slots=True)
class Contribution:
    """What a flag adds to the winner, as a fraction of the winner without it, with its interval.

    ``needed`` is False where the winner without it is as good or better, within ``low`` and ``high``.
    """

    flag: str
    gain: float
    low: float
    high: float
    needed: bool


def without_each(winner: LaunchConfig, fixed: LaunchConfig) -> dict[str, LaunchConfig]:
    """The winner with one flag back at the default, by that flag's name; flags of ``fixed`` stay."""
    kept = {name for name, _ in fixed.flags}
    return {name: winner.without(name) for name, _ in winner.flags if name not in kept}


def contributions(
    result: RaceResult, winner: str, worth: float = 0.01, names: Mapping[str, str] | None = None
) -> tuple[Contribution, ...]:
    """Each flag's part, largest first; a variant that was dropped from the race (it cannot start) is needed.

    ``worth`` is the loss (fraction) that one flag fewer may cost at most, if it is not proven to cost more.
    ``names`` maps runners to the flags that they lack, where runners are not called by them.
    """
    flag = names or {s: s for s in (*(x.runner for x in result.standings), *result.dropped)}
    standings = [s for s in result.standings if s.runner != winner]
    found = [_contribution(flag[s.runner], s.gain, s.low, s.high, worth) for s in standings]
    found += [Contribution(flag[r], math.inf, math.inf, math.inf, True) for r in result.dropped if r != winner]
    return tuple(sorted(found, key=lambda c: -c.gain))


def pruned(winner: LaunchConfig, parts: Sequence[Contribution]) -> LaunchConfig:
    """The winner without the flags that add nothing."""
    return winner.without(*(part.flag for part in parts if not part.needed))


def _contribution(flag: str, loss: float, low: float, high: float, worth: float) -> Contribution:
    """From the gain (mostly negative) of the variant over the winner."""
    gain, least, most = (1 / (1 + x) - 1 for x in (loss, high, low))
    return Contribution(flag, gain, least, most, needed=least > 0 or gain > worth)
