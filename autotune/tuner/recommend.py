"""From a race's result to a recommendation: what to launch, why, and when that stops being true."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from autotune import __version__
from autotune.search.race import RaceResult, Standing
from autotune.search.types import Direction, Observation, Outcome
from autotune.space.config import LaunchConfig
from autotune.store.recommendation import Interval, Provenance, Recommendation, Role, Verdict
from autotune.tuner.contenders import excesses
from autotune.tuner.ending import Ending
from autotune.tuner.finals import Entrant
from autotune.tuner.objective import SLO_MARGIN
from autotune.tuner.plan import Plan
from autotune.tuner.proof import parts, parts_text, soak, soak_text
from autotune.tuner.racers import as_change, racers


@dataclass(frozen=True, slots=True)
class Searched:
    """What the search saw of the default, and of all.

    ``default`` is reported where no race was run. ``out`` says why the default did not race, ``unmeasured`` why it has
    no figure, ``missed`` which configuration came nearest to the SLOs where none met them. ``alone`` is set where
    nothing but the default was measured.
    """

    default: Outcome | None
    out: str = ""
    unmeasured: str = ""
    missed: str = ""
    alone: bool = False


def recommend(
    plan: Plan,
    ending: Ending,
    baseline: Entrant | None,
    searched: Searched,
    boot_s: float | None,
    *,
    aspect: str = "",
) -> Recommendation:
    """The recommendation; without a proven winner vLLM's defaults stay, if they were measured."""
    result, finalists = ending.race, list(ending.finalists)
    winner = next((f for f in finalists if f.config.key() == result.winner), None)
    standing = {s.runner: s for s in result.standings}
    base = standing.get(baseline.config.key()) if baseline else None
    best = standing.get(winner.config.key()) if winner else None
    own = result.half_width / math.sqrt(2)
    entrants = [*([baseline] if baseline else []), *finalists]
    default = _absolute(base, own) or _measured(searched.default)
    verdict = _verdict(winner, default, searched)
    return Recommendation(
        verdict=verdict,
        config=winner.config.changes_from(plan.space.fixed) if winner else LaunchConfig(),
        fixed=plan.space.fixed,
        unit=plan.objective.unit,
        baseline=default,
        best=_absolute(best, own) or default,
        gain=as_change(plan.objective.direction, best.gain, best.low, best.high) if best and base else None,
        reasons=(
            *_reasons(result, winner, baseline, finalists, plan.objective.direction, searched, verdict),
            *_spare(plan, winner),
            *parts_text(ending, winner, best.gain if best and base else None),
            *ending.notes,
            *soak_text(ending),
            *([] if verdict == "not-measured" else _length(plan)),
        ),
        boot_s=boot_s,
        provenance=provenance(plan, aspect),
        parts=parts(ending, winner),
        soak=soak(ending),
        racers=racers(result, entrants, plan.space.fixed, own, plan.objective.direction)
        if any(result.values.values())
        else (),
        direction=plan.objective.direction,
    )


def provenance(plan: Plan, aspect: str = "") -> Provenance:
    """Where this study's numbers come from, those of one aspect where it has several."""
    return Provenance(
        study=plan.study,
        measured_at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        autotune_version=__version__,
        vllm_version=plan.install.version,
        vllm_distribution=plan.install.dist_name,
        host_fingerprint=plan.host.fingerprint(),
        device=plan.device.name,
        driver=plan.host.driver_version or "none",
        model=plan.model.serve,
        model_revision=plan.model.revision,
        workload=f"{plan.workload.name}, {plan.objective.load_of(aspect)}",
        objective=plan.objective.title(aspect),
        retune_when="vLLM, the driver, the model, the workload or the machine changes",
    )


def entrant(plan: Plan, config: LaunchConfig) -> Entrant:
    """A racing configuration, named by what it changes."""
    changes = config.differences(plan.space.fixed)
    role: Role = "finalist" if changes else "default"
    return Entrant(str(config.changes_from(plan.space.fixed)), config, len(changes), role)


def _length(plan: Plan) -> list[str]:
    """The context that was measured is the workload's, which may be shorter than production's."""
    length = plan.space.fixed.get("max-model-len")
    if length is None:
        return []
    return [f"max-model-len is {length}, the workload's longest request: raise it if production sends longer ones."]


def nearest_miss(plan: Plan, history: Sequence[Observation]) -> str:
    """Which own boot came nearest to the SLOs, in words; empty where one met them or nothing was measured."""
    own = [o for o in history if o.suggestion.fidelity == "own" and o.outcome.status != "not_measured"]
    worst = [(max(excesses(o.outcome, plan.objective).values(), default=-1.0), o) for o in own]
    margin = plan.objective.pick_margin
    if all(excess <= -1.0 for excess, _ in worst) or any(
        excess <= -margin and o.outcome.status == "measured" for excess, o in worst
    ):
        return ""
    nearest = min(worst, key=lambda pair: pair[0] if pair[0] > -1.0 else math.inf)[1]
    why = nearest.outcome.reason or f"met, but with less than {margin:.0%} to spare"
    return f"{entrant(plan, nearest.suggestion.target).name}: {why}"


def _spare(plan: Plan, winner: Entrant | None) -> list[str]:
    """What a pick under SLOs promises."""
    slos = plan.objective.slos
    if winner is None or not slos:
        return []
    return [f"It was picked with {SLO_MARGIN:.0%} of each limit to spare ({', '.join(map(str, slos))})."]


def _verdict(winner: Entrant | None, default: Interval | None, searched: Searched) -> Verdict:
    if winner is not None:
        return "keep-incumbent" if winner.role == "incumbent" else "adopt"
    if default is not None:
        return "keep-default"
    return "not-measured" if searched.unmeasured else "nothing-feasible"


def _absolute(standing: Standing | None, own: float) -> Interval | None:
    """A runner's mean with its own interval, ``own`` being the half-width of its logarithm."""
    return None if standing is None else Interval.around(standing.value, own)


def _measured(outcome: Outcome | None) -> Interval | None:
    """A measured outcome with its 95 % interval."""
    if outcome is None or outcome.value is None:
        return None
    half = 1.96 * (outcome.value_se or 0.0)
    return Interval(outcome.value, outcome.value - half, outcome.value + half)


def _rounds(result: RaceResult) -> str:
    return f"{result.rounds} interleaved round{'s' if result.rounds > 1 else ''}"


def _reasons(
    result: RaceResult,
    winner: Entrant | None,
    baseline: Entrant | None,
    finalists: list[Entrant],
    direction: Direction,
    searched: Searched,
    verdict: Verdict,
) -> list[str]:
    reasons = []
    lost = result.dropped.get(baseline.config.key(), "") if baseline else ""
    if verdict == "not-measured":
        return [
            f"They were not measured: {lost or searched.unmeasured}.",
            "Nothing can be proven better without them. Mend that, or raise --budget, and give the same command again.",
        ]
    if winner is not None:
        rival = "the default" if baseline else "the other finalists"
        reasons.append(f"{winner.name} won over {rival} in {_rounds(result)} on fresh engines.")
        reasons += _over_incumbents(result, winner, finalists, direction)
    elif searched.missed:
        nearest = f"The nearest miss is {searched.missed}."
        reasons.append(f"No configuration gives what was asked, with room to spare. {nearest}")
    elif not finalists and baseline is None:
        reasons.append("No configuration could be raced.")
    elif not finalists:
        reasons.append(f"{nothing_better(searched.alone)}, so nothing was raced.")
    elif lost:
        reasons.append("The default gave no figure in the race, so nothing is proven better.")
    elif result.rounds == 0:
        reasons.append("The budget ended before the finalists were raced, so no gain is claimed.")
    else:
        hidden = f"{100 * math.expm1(result.half_width):.1f} %"
        reasons.append(
            f"After {_rounds(result)} no finalist is proven better: the noise here hides gains under {hidden}."
        )
    if baseline is None:
        reasons.append(f"{searched.out or 'There is no default'}, so there is no gain over them to state.")
    names = {f.config.key(): f.name for f in finalists}
    reasons += [f"{names.get(key, 'the default')} left the race: {why}" for key, why in result.dropped.items()]
    return reasons


def nothing_better(alone: bool) -> str:
    """Why there is nothing to race, where the default may; ``alone``: nothing else was measured."""
    return (
        f"No configuration {'but the default was measured' if alone else 'did better than the default in the search'}"
    )


def _over_incumbents(result: RaceResult, winner: Entrant, finalists: list[Entrant], direction: Direction) -> list[str]:
    """What changes against production, in one line for each configuration there."""
    if winner.role == "incumbent":
        return [f"{winner.name} is in production already: keep it."]
    standing = {s.runner: s for s in result.standings}
    mine = standing[winner.config.key()]
    rivals = [f for f in finalists if f.role == "incumbent" and f.config.key() in standing]
    gains = [(r, as_change(direction, *result.gain_over(mine, standing[r.config.key()]))) for r in rivals]
    return [f"Against {rival.name}: {gain.as_gain()}." for rival, gain in gains]
