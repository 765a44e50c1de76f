"""What a re-tune found, as one value: JSON for automation, lines for a person, an exit code for cron.

0   equal: nothing has to change          20  hold: stay on the old version
10  a configuration was exported          30  could not decide, or was skipped
2   an error: nothing was found out
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from autotune.retune.compare import Contrast
from autotune.retune.verdict import Verdict
from autotune.space.config import LaunchConfig

SCHEMA_VERSION = 1
EXPORTED, HOLD, UNDECIDED = 10, 20, 30

Outcome = Verdict | Literal["skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """``values`` holds what each arm gave in ``unit``; ``adopted`` is the whole launch config to start, if one is new.

    ``change`` compares the incumbent on the new version with what runs now. ``boots`` counts engines of the comparison;
    those of a search are in the night's database.
    """

    verdict: Outcome
    study: str
    started_at: str
    unit: str = ""
    vllm_old: str = ""
    vllm_new: str = ""
    reasons: tuple[str, ...] = ()
    migration: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    change: Contrast | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    adopted: LaunchConfig | None = None
    rounds: int = 0
    boots: int = 0
    spent_s: float = 0.0
    budget_s: float = 0.0
    exported: tuple[str, ...] = ()
    folder: str = ""

    @property
    def exit_code(self) -> int:
        """See above. What was exported counts as a change, whatever the verdict's name."""
        if self.exported:
            return EXPORTED
        return {"hold": HOLD, "undecided": UNDECIDED, "skipped": UNDECIDED}.get(self.verdict, 0)

    def to_json(self) -> dict[str, Any]:
        """Plain values; the open end of an interval that is not known is null."""
        data = {"schema_version": SCHEMA_VERSION, "exit_code": self.exit_code, **asdict(self)}
        if self.change is not None and self.change.rounds == 0:
            data["change"] = None
        return data

    def lines(self) -> list[str]:
        """What a person reads."""
        versions = f" ({self.vllm_old} → {self.vllm_new})" if self.vllm_new else ""
        lines = [f"{self.verdict.upper()}{versions}", *(f"  {text}" for text in self.reasons)]
        lines += [f"  {name}: {value:,.1f} {self.unit}" for name, value in self.values.items()]
        lines += [f"  {text}" for text in (*self.migration, *self.notes)]
        if self.adopted is not None:
            lines.append(f"  Start it with: {self.adopted}")
        lines += [f"  Replaced {path} (before: {path}.previous)" for path in self.exported]
        if self.boots:
            lines.append(f"  {self.boots} boots, {self.spent_s:.0f} s; {self.folder}")
        return lines
