"""The final race as a table: every racer's rounds, and its gain over the default and over each incumbent."""

from collections.abc import Sequence

from autotune.search.race import RaceResult, Standing
from autotune.search.types import Direction
from autotune.space.config import LaunchConfig
from autotune.store.recommendation import Interval, Racer
from autotune.tuner.finals import Entrant


def racers(
    result: RaceResult, entrants: Sequence[Entrant], fixed: LaunchConfig, own: float, direction: Direction
) -> tuple[Racer, ...]:
    """One row per entrant, in their order, with what it sets beyond ``fixed``.

    ``own`` is the half-width of one racer's own interval, in logarithms.
    """
    standing = {s.runner: s for s in result.standings}
    rivals = [e for e in entrants if e.role != "finalist" and e.config.key() in standing]
    return tuple(_racer(result, e, e.config.changes_from(fixed), standing, rivals, own, direction) for e in entrants)


def as_change(direction: Direction, gain: float, low: float, high: float) -> Interval:
    """A race's gain, which is above zero where it is better in either direction, as the figure's own change."""
    if direction == "maximize":
        return Interval(gain, low, high)
    return Interval(1 / (1 + gain) - 1, 1 / (1 + high) - 1, 1 / (1 + low) - 1)


def _racer(
    result: RaceResult,
    entrant: Entrant,
    config: LaunchConfig,
    standing: dict[str, Standing],
    rivals: Sequence[Entrant],
    own: float,
    direction: Direction,
) -> Racer:
    key = entrant.config.key()
    mine = standing.get(key)
    over = {
        _name(r): as_change(direction, *result.gain_over(mine, standing[r.config.key()]))
        for r in rivals
        if mine and r is not entrant
    }
    return Racer(
        name=_name(entrant),
        role=entrant.role,
        config=config,
        rounds=tuple(result.values.get(key, ())),
        value=Interval.around(mine.value, own) if mine else None,
        gain_over=over,
        left=result.dropped.get(key, ""),
    )


def _name(entrant: Entrant) -> str:
    return "default" if entrant.role == "default" else entrant.name
