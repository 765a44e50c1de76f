"""Which earlier trials are worth another look on a new version.

A trial is a prior only where it still means what it meant: every flag that it sets is taken word for word, and no
parameter that it leaves alone has got another default. What it gave on the old version is not carried over, only the
order: the best of them are tried first.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autotune.engine.flags import FlagTable
from autotune.retune.incumbent import Earlier
from autotune.retune.migrate import changed_meaning, migrate
from autotune.space.config import LaunchConfig

MOST_SEEDS = 4


@dataclass(frozen=True, slots=True)
class Priors:
    """``seeds`` are the best configurations that kept their meaning; ``notes`` say what was left out and why."""

    seeds: tuple[LaunchConfig, ...] = ()
    notes: tuple[str, ...] = ()


def find_priors(
    earlier: Iterable[Earlier],
    names: Sequence[str],
    incumbent: LaunchConfig,
    before: FlagTable,
    after: FlagTable,
) -> Priors:
    """Priors among ``earlier``, best first as given; ``names`` are the parameters that the new space searches."""
    shared = [name for name in names if before.get(name) and after.get(name)]
    changed = changed_meaning(shared, before, after)
    kept: list[LaunchConfig] = []
    reasons: dict[str, None] = {}
    left_out = 0
    for trial in earlier:
        config = LaunchConfig.of({name: value for name, value in trial.config.flags if name in names})
        why = [reason for name, reason in changed.items() if config.get(name) is None]
        why += [change.text.rstrip(".") for change in migrate(config, after).changes]
        if why:
            left_out += 1
            reasons |= dict.fromkeys(why)
        elif config.flags and config != incumbent and config not in kept:
            kept.append(config)
    notes = (f"{left_out} earlier trials mean something else now and were left out.",) if left_out else ()
    return Priors(tuple(kept[:MOST_SEEDS]), (*notes, *(f"{reason}." for reason in reasons)))
