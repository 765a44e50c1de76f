"""The end of a run: what was found, what it is worth and what to do with it."""

import sys
from collections.abc import Sequence
from typing import Any

import orjson
from rich.console import Console
from rich.table import Table
from rich.text import Text

from autotune.report.figures import figure
from autotune.report.quality import quality_table, split_text
from autotune.store.recommendation import Interval, Racer, Recommendation


def print_result(recommendation: Recommendation, *, as_json: bool) -> None:
    """Print the recommendation to standard output, for a person or as JSON."""
    if as_json:
        sys.stdout.write(orjson.dumps(recommendation.to_json(), option=orjson.OPT_INDENT_2).decode() + "\n")
        return
    console = Console()
    console.print(_headline(recommendation), style="bold", highlight=False)
    console.print(_figures(recommendation))
    if recommendation.racers:
        console.print(_race(recommendation.racers, recommendation.unit))
    if len(recommendation.quality) > 1:
        console.print(quality_table(recommendation.quality, recommendation.unit))
    for reason in recommendation.reasons:
        console.print(f"  {reason}", highlight=False, markup=False)


def _headline(recommendation: Recommendation) -> str:
    if recommendation.verdict == "adopt":
        checkpoint = f"the checkpoint {recommendation.variant}, " if recommendation.variant else ""
        return f"Adopt: {checkpoint}{recommendation.config}"
    if recommendation.verdict == "keep-incumbent":
        return f"Keep what runs in production: {recommendation.config}"
    if recommendation.verdict == "keep-default":
        why = "measured better than the noise" if _was_raced(recommendation) else "was proven better"
        return f"Keep vLLM's defaults: nothing {why}."
    if recommendation.verdict == "not-measured":
        return "vLLM's defaults were not measured, so nothing is recommended."
    return "Nothing is recommended: no configuration was proven to give what was asked."


def _was_raced(recommendation: Recommendation) -> bool:
    """Whether the default and another configuration have figures of the same race."""
    return len({racer.role == "default" for racer in recommendation.racers if racer.value}) == 2


def _figures(recommendation: Recommendation) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    rows: list[tuple[str, Any]] = [
        ("baseline", _interval(recommendation.baseline, recommendation.unit)),
        ("best", _interval(recommendation.best, recommendation.unit)),
        ("gain", recommendation.gain_text()),
    ]
    if recommendation.split is not None and recommendation.split.precision:
        rows.append(("of it", split_text(recommendation.split)))
    for name, text in rows:
        table.add_row(f"  {name}", text)
    return table


def _race(racers: Sequence[Racer], unit: str) -> Table:
    """The final race: one row a racer, its gain over the default and over each incumbent."""
    named = dict.fromkeys(name for racer in racers for name in racer.gain_over)
    rivals = sorted(named, key=lambda name: name != "default")
    table = Table(box=None, pad_edge=False, title="final race", title_justify="left")
    for head in ("  racer", unit, *(f"over {name}" for name in rivals)):
        table.add_column(head, justify="left" if head == "  racer" else "right", overflow="fold")
    for racer in racers:
        value = figure(racer.value.value) if racer.value else racer.left or "not measured"
        gains = (racer.gain_over[name].as_gain() if name in racer.gain_over else "" for name in rivals)
        table.add_row(Text(f"  {racer.name}"), value, *gains)
    return table


def _interval(interval: Interval | None, unit: str) -> str:
    if interval is None:
        return "not measured"
    return f"{figure(interval.value)} {unit} (95 % interval {figure(interval.low)} to {figure(interval.high)})"
