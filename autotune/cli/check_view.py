"""A check on a terminal: a heading for each launch, its findings from grave to slight, and one line of sum."""

import json
import sys

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from autotune.check.case import Finding
from autotune.check.check import Checked, Report

_STYLES = {"error": "bold red", "warning": "yellow", "advice": "cyan"}
_PLURALS = {"error": "errors", "warning": "warnings", "advice": "advice"}


def print_report(report: Report, *, as_json: bool = False, console: Console | None = None) -> None:
    """Print to standard output, for a person or as JSON."""
    if as_json:
        sys.stdout.write(json.dumps(report.to_json(), indent=2, ensure_ascii=False) + "\n")
        return
    console = console or Console(highlight=False)
    for checked in report.launches:
        console.print(_heading(report, checked))
        for finding in checked.findings:
            console.print(Padding(_finding(finding), (1, 0, 0, 2)))
        for line in checked.unknown:
            console.print(Padding(Text(f"not judged: {line}", style="dim"), (1, 0, 0, 2)))
        console.print(Padding(_sum(checked), (1, 0, 1, 2)))


def _heading(report: Report, checked: Checked) -> Text:
    place = f"{report.file}:{checked.launch.line}" if report.file else "command line"
    name = f" ({checked.launch.name})" if checked.launch.name else ""
    device = f", on {report.device.name}" if report.device else ""
    version = f"for vLLM {checked.vllm}, {checked.vllm_why}{device}"
    model = checked.model or "model not known"
    return Text.assemble((f"{place}{name}", "bold"), f"  {model}\n", (version, "dim"))


def _finding(finding: Finding) -> Table:
    """The level and its code on the left, what is wrong on the right, and below it why and what to write."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, min_width=9)
    table.add_column(overflow="fold")
    style = _STYLES[finding.level]
    table.add_row(
        Text(finding.level, style=style), Text.assemble((finding.what, "bold"), (f"  [{finding.code}]", "dim"))
    )
    rows: list[tuple[str, RenderableType]] = [("line", Text(str(finding.line)))] if finding.line > 1 else []
    rows += [("why", Text(finding.why))] if finding.why else []
    rows += [("instead", Text(finding.instead, style="green"))] if finding.instead else []
    rows += [("source", Text(finding.source, style="dim"))] if finding.source else []
    for label, value in rows:
        table.add_row(Text(label, style="dim"), value)
    return table


def _sum(checked: Checked) -> Text:
    if not checked.findings:
        return Text("Nothing found.", style="green")
    counts = {level: sum(f.level == level for f in checked.findings) for level in _STYLES}
    parts = [f"{n} {_PLURALS[level] if n > 1 else level}" for level, n in counts.items() if n]
    return Text(
        ", ".join(parts), style="green" if checked.clean else _STYLES["error" if counts["error"] else "warning"]
    )
