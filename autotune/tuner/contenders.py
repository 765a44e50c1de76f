"""Who races at the end, and in which figure: the default unless it is out, and what could be better than it."""

import math
from collections.abc import Sequence
from dataclasses import replace

from autotune.search.types import GIVEN, Observation, Outcome
from autotune.tuner.objective import Objective, misses


def of_aspect(seen: Observation, aspect: str) -> Observation:
    """The observation with one of its aspects for its value."""
    outcome = seen.outcome
    if not aspect or aspect not in outcome.aspects:
        return seen
    # The value is the geometric mean of the aspects: one of them alone is known that much less well.
    relative = (outcome.value_se or 0.0) / (outcome.value or 1.0) * math.sqrt(len(outcome.aspects))
    value = outcome.aspects[aspect]
    return replace(seen, outcome=replace(outcome, value=value, value_se=relative * value))


def excesses(outcome: Outcome, objective: Objective) -> dict[str, float]:
    """What of an outcome's violations is about the objective: its SLOs, or what made it infeasible."""
    names = [str(slo) for slo in objective.slos]
    return {n: v for n, v in outcome.violations.items() if outcome.status == "infeasible" or n in names}


def best_in(history: Sequence[Observation], aspect: str, count: int = 1) -> list[Observation]:
    """The own boots with the best figure in an aspect, best first; never what races anyway."""
    able = [o for o in history if o.suggestion.fidelity == "own" and aspect in o.outcome.aspects]
    able = [o for o in able if o.suggestion.origin not in GIVEN and o.outcome.meets_slo]
    return [of_aspect(o, aspect) for o in sorted(able, key=lambda o: -o.outcome.aspects[aspect])[:count]]


def out_of_the_race(base: Observation | None, objective: Objective, aspect: str) -> str:
    """Why vLLM's defaults do not race: they do not run here, or not within the SLOs. Empty where they do."""
    if base is None or base.outcome.status == "not_measured":
        return ""
    outcome = base.outcome
    if outcome.status == "infeasible":
        return f"vLLM's defaults {'are out:' if outcome.violations else 'do not run here:'} {outcome.reason}"
    if aspect and aspect not in outcome.aspects:
        return f"vLLM's defaults are out: they miss an SLO with {objective.load_of(aspect)}"
    close = {name: excess for name, excess in excesses(outcome, objective).items() if excess > -objective.pick_margin}
    if not close:
        return ""
    why = "; ".join(misses(close)) or f"{', '.join(close)} met with less than {objective.pick_margin:.0%} to spare"
    return f"vLLM's defaults are out: {why}"


def unmeasured(base: Observation | None, because: str) -> str:
    """Why the search has no figure of vLLM's defaults; empty where it has one, be it of a limit that they miss.

    ``because`` is why they were not measured, where they might run.
    """
    if base is None:
        return because or "the run ended before they were"
    fails = base.outcome.status == "infeasible" and not base.outcome.violations
    return f"they do not run here: {base.outcome.reason}" if fails else ""


def within_reach(found: Sequence[Observation], base: Observation, objective: Objective) -> list[Observation]:
    """Of ``found`` those that could be better than the default, given what the search saw of both."""
    if base.outcome.value is None:
        return list(found)
    sign = 1.0 if objective.direction == "maximize" else -1.0
    reach = sign * base.outcome.value - 2 * (base.outcome.value_se or 0.0)
    return [o for o in found if sign * (o.outcome.value or 0.0) + 2 * (o.outcome.value_se or 0.0) >= reach]
