"""A plan for a person, or as JSON."""

import sys
from dataclasses import asdict
from typing import Any

import orjson
from rich.console import Console

from autotune.report.figures import figure
from autotune.search.planner import Candidate
from autotune.tuner.planning import Ahead, Forecast


def print_plan(ahead: Ahead, *, as_json: bool) -> None:
    """Print to standard output."""
    if as_json:
        sys.stdout.write(orjson.dumps(_json(ahead), option=orjson.OPT_INDENT_2).decode() + "\n")
        return
    console = Console(highlight=False, markup=False, soft_wrap=True)
    for line in _lines(ahead):
        console.print(line)


def _lines(ahead: Ahead) -> list[str]:
    plan, seen = ahead.plan, ahead.outlook
    limit = f"{plan.settings.trials} trials" if plan.settings.budget_s is None else f"{plan.settings.budget_s:.0f} s"
    done = f", {ahead.told} trials of it are done" if ahead.told else ""
    return [
        *plan.remarks,
        f"Study {plan.study}{done}; objective {plan.objective.title()}; workload {plan.workload.name}, "
        f"{plan.objective.load}; {limit}.",
        f"{plan.device.name}; vLLM {plan.install.version} in {plan.install.python}; model {plan.model.name}.",
        f"Search space {plan.space.chosen_because}; {len(plan.space.parameters)} parameters, "
        f"{seen.assignments:,} configurations.",
        "",
        "Tried first, in this order:",
        *(f"  {c.origin:<9}  {_shown(ahead, c)}" for c in seen.first),
        "Then what the search finds most promising; before it learns anything that is:",
        *(f"  {_shown(ahead, c)}" for c in seen.next_up),
        "",
        *_left_out(ahead),
        "",
        *_forecast(ahead.forecast),
    ]


def _shown(ahead: Ahead, candidate: Candidate) -> str:
    named = (i.name for i in ahead.plan.incumbents if i.config == candidate.config)
    name = next((f"{n}: " for n in named), "")
    predicted, unit = candidate.predicted, ahead.plan.objective.unit
    expected = "" if predicted is None else f"  (physics expects {figure(predicted)} {unit})"
    skipped = f"  - left out: {candidate.skipped}" if candidate.skipped else ""
    return f"{name}{candidate.config.changes_from(ahead.plan.space.fixed)}{expected}{skipped}"


def _left_out(ahead: Ahead) -> list[str]:
    seen = ahead.outlook
    refused = sum(each.count for each in seen.impossible)
    lines = [f"Predicted impossible: {refused} of {seen.looked_at} configurations looked at."]
    for each in seen.impossible[:8]:
        lines.append(f"  {each.count:>5}  {each.reason}")
        lines.append(f"         such as {each.example.changes_from(ahead.plan.space.fixed)}")
    dropped = ahead.plan.space.dropped
    lines += [f"Not searched here ({len(dropped)}):"] if dropped else []
    return [*lines, *(f"  {d.parameter}{'' if d.value is None else f' {d.value}'}: {d.reason}" for d in dropped)]


def _forecast(forecast: Forecast) -> list[str]:
    lines = [f"Forecast: {forecast.boots} boots, {_minutes(forecast.seconds)}."]
    lines += [f"  {p.name:<24} {p.boots:>3} boots  {_minutes(p.seconds):>8}" for p in forecast.parts]
    lines.append(f"It rests on this: {forecast.rests_on}.")
    means = f"A boot {forecast.boot_s:.0f} s, a point {forecast.point_s:.0f} s, a visit of the race"
    return [*lines, f"{means} {forecast.visit_s:.0f} s."]


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def _json(ahead: Ahead) -> dict[str, Any]:
    plan, seen = ahead.plan, ahead.outlook
    return {
        "study": plan.study,
        "trials_done": ahead.told,
        "identity": plan.identity(),
        "space": {
            "name": plan.space.name,
            "parameters": [p.name for p in plan.space.parameters],
            "configurations": seen.assignments,
            "dropped": [asdict(d) for d in plan.space.dropped],
        },
        "first": [_candidate(ahead, c) for c in seen.first],
        "next_up": [_candidate(ahead, c) for c in seen.next_up],
        "looked_at": seen.looked_at,
        "impossible": [
            {"reason": i.reason, "count": i.count, "example": dict(i.example.flags)} for i in seen.impossible
        ],
        "forecast": {**asdict(ahead.forecast), "boots": ahead.forecast.boots, "seconds": ahead.forecast.seconds},
    }


def _candidate(ahead: Ahead, candidate: Candidate) -> dict[str, Any]:
    own = candidate.config.changes_from(ahead.plan.space.fixed)
    name = next((i.name for i in ahead.plan.incumbents if i.config == candidate.config), None)
    return {
        "origin": candidate.origin,
        "name": name,
        "flags": dict(own.flags),
        "env": dict(own.env),
        "predicted": candidate.predicted,
        "skipped": candidate.skipped or None,
    }
