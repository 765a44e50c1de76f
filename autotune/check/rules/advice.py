"""What works and could be better: rows of ``advice.json``, each with where it is known from."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from packaging.version import Version

from autotune.check.case import Case, Finding

_FILE = Path(__file__).parents[1] / "advice.json"


@cache
def rows() -> list[Mapping[str, Any]]:
    """A row applies to a flag (or variable) with one of the values ``is``, or a number of at least ``at_least``."""
    found: list[Mapping[str, Any]] = json.loads(_FILE.read_bytes())["advice"]
    return found


def listed_advice(case: Case) -> Iterator[Finding]:
    """Every row that applies."""
    for row in rows():
        line = _line(case, row)
        if line is not None and _holds(case, row):
            yield Finding(
                level="advice",
                code=row["code"],
                what=row["what"],
                why=row.get("why", ""),
                instead=row.get("instead", ""),
                source=row["source"],
                line=line,
            )


def _line(case: Case, row: Mapping[str, Any]) -> int | None:
    """The line of the setting with the value that the row speaks of."""
    if "env" in row:
        word = dict(case.launch.env).get(row["env"])
        return word.line if word and word.text in row["is"] else None
    setting = case.arguments.get(row["flag"])
    if setting is None or not setting.known:
        return None
    value = setting.value
    if "is" in row and value not in row["is"]:
        return None
    if "at_least" in row and (not isinstance(value, int | float) or value < row["at_least"]):
        return None
    return setting.line


def _holds(case: Case, row: Mapping[str, Any]) -> bool:
    """Whether version and device are those that the row is for."""
    if "since" in row and case.version < Version(row["since"]):
        return False
    return not ("kind" in row and case.device and case.device.kind != row["kind"])


RULES = (listed_advice,)
