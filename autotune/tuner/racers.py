"""The final race as a table: every racer's rounds, and its gain over the default and over each incumbent."""

from collections.abc import Sequence

from autotune.search.race import RaceResult, Standing
from autotune.space.config import LaunchConfig
from autotune.store.recommendation import Interval, Racer
from autotune.tuner.finals import Entrant


def racers(result: RaceResult, entrants: Sequence[Entrant], fixed: LaunchConfig, own: float) -> tuple[Racer, ...]:
    """One row per entrant, in their order, with what it sets beyond ``fixed``.

    ``own`` is the half-width of one racer's own interval, in logarithms.
    """
    standing = {s.runner: s for s in result.standings}
    rivals = [e for e in entrants if e.role != "finalist" and e.config.key() in standing]
    return tuple(_racer(result, e, e.config.changes_from(fixed), standing, rivals, own) for e in entrants)


def _racer(
    result: RaceResult,
    entrant: Entrant,
    config: LaunchConfig,
    standing: dict[str, Standing],
    rivals: Sequence[Entrant],
    own: float,
) -> Racer:
    key = entrant.config.key()
    mine = standing.get(key)
    over = {_name(r): _gain(result, mine, standing[r.config.key()]) for r in rivals if mine and r is not entrant}
    return Racer(
        name=_name(entrant),
        role=entrant.role,
        config=config,
        rounds=tuple(result.values.get(key, ())),
        value=Interval.around(mine.value, own) if mine else None,
        gain_over=over,
        left=result.dropped.get(key, ""),
    )


def _gain(result: RaceResult, mine: Standing, rival: Standing) -> Interval:
    return Interval(*result.gain_over(mine, rival))


def _name(entrant: Entrant) -> str:
    return "default" if entrant.role == "default" else entrant.name
