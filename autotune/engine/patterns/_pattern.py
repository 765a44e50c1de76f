"""One row of the pattern table, and how rows are written."""

import re
from dataclasses import dataclass

OOM = "oom"


@dataclass(frozen=True, slots=True)
class Pattern:
    """One row of the table; ``cls`` is the name of a failure class, or ``OOM``."""

    cls: str
    needle: str
    regex: re.Pattern[str] | None = None

    def find(self, text: str, lowered: str) -> int:
        """Where it matches in ``text`` (whose lower-case form is ``lowered``), or -1.

        A group named ``at`` marks the words that a person wants to see; else the match begins with them.
        """
        at = lowered.find(self.needle)
        if at < 0 or self.regex is None:
            return at
        match = self.regex.search(text)
        if match is None:
            return -1
        return match.start("at") if "at" in self.regex.groupindex else match.start()


def rows(cls: str, *rows: str | tuple[str, str]) -> tuple[Pattern, ...]:
    """Patterns of one class: a needle, or a needle with the regular expression that decides."""
    return tuple(
        Pattern(cls, row)
        if isinstance(row, str)
        else Pattern(cls, row[0], re.compile(row[1], re.IGNORECASE | re.DOTALL))
        for row in rows
    )
