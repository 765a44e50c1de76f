"""Quality beside speed, a line for each precision class, and the gain in its two parts."""

import sys
from dataclasses import asdict
from typing import Literal

import orjson
from rich.console import Console
from rich.table import Table

from autotune.store.recommendation import GainSplit, Interval, PrecisionQuality

NARROW = ("verdict", "speed", "KL", "perplexity", "weights", "KV/token")


def print_compared(rows: tuple[PrecisionQuality, ...], unit: str, title: str, *, as_json: bool) -> None:
    """Print the rows for a person, with the reasons below, or as JSON."""
    if as_json:
        sys.stdout.write(orjson.dumps([asdict(row) for row in rows], option=orjson.OPT_INDENT_2).decode() + "\n")
        return
    console = Console()
    console.print(title, style="bold", highlight=False, markup=False)
    console.print(quality_table(rows, unit))
    for row in rows:
        if row.reason:
            console.print(f"  {row.name}: {row.reason}", highlight=False, markup=False)


def quality_table(rows: tuple[PrecisionQuality, ...], unit: str) -> Table:
    """One line a class; empty places were not measured. KL is in nats a token, memory in GiB and KiB."""
    table = Table(box=None, pad_edge=False)
    table.add_column("precision", overflow="fold")
    for name, below in zip(NARROW, ("", unit, "nats", "", "GiB", "KiB"), strict=True):
        justify: Literal["left", "right"] = "left" if name == "verdict" else "right"
        table.add_column(f"{name}\n{below}", justify=justify, no_wrap=True)
    for row in rows:
        table.add_row(
            row.name,
            row.verdict,
            "" if row.value is None else f"{row.value:,.0f}",
            "" if row.kl is None else f"{row.kl.value:.4f}",
            _rise(row.perplexity_ratio),
            "" if row.weights_bytes is None else f"{row.weights_bytes / 2**30:.2f}",
            "" if row.kv_bytes_per_token is None else f"{row.kv_bytes_per_token / 1024:.1f}",
        )
    return table


def split_text(split: GainSplit) -> str:
    """The gain at equal precision, and what changing the precision adds."""
    source = "in the race" if split.raced else "as the search measured it"
    return f"at equal precision {100 * split.equal:+.1f} % ({source}), by precision {100 * split.precision:+.1f} %"


def _rise(ratio: Interval | None) -> str:
    if ratio is None:
        return ""
    return f"{100 * (ratio.value - 1):+.2f} %" if ratio.value < 10 else f"x {ratio.value:,.0f}"
