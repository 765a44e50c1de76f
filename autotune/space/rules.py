"""Rules between parameters, parsed from one comparison, never evaluated as code.

    max-num-batched-tokens >= max-num-seqs        flag, operator, flag or number

A comparison is judged on resolved values (what the engine would use); where one side is not known it holds.
``Needs`` is the second kind of rule: one value of a parameter stands only with certain values of others. It
is judged on what was chosen.
"""

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from autotune.space.config import FlagValue

Chosen = Mapping[str, FlagValue | None]

_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}
_RULE = re.compile(r"\s*([a-z][a-z0-9-]*)\s*(>=|<=|==|!=|>|<)\s*([a-z][a-z0-9-]*|\d+(?:\.\d+)?)\s*")


@dataclass(frozen=True, slots=True)
class Comparison:
    """``left`` compared with ``right``: a flag's name, and a flag's name or a number."""

    left: str
    sign: str
    right: str | float

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags that the rule speaks of."""
        return (self.left, self.right) if isinstance(self.right, str) else (self.left,)

    def holds(self, values: Chosen) -> bool:
        """Whether the values keep the rule; an unknown or unnumbered side breaks nothing."""
        left = values.get(self.left)
        right = values.get(self.right) if isinstance(self.right, str) else self.right
        if not is_number(left) or not is_number(right):
            return True
        return _OPERATORS[self.sign](float(left), float(right))  # type: ignore[arg-type]

    def __str__(self) -> str:
        shown = self.right if isinstance(self.right, str) else f"{self.right:g}"
        return f"{self.left} {self.sign} {shown}"


@dataclass(frozen=True, slots=True)
class Needs:
    """``value`` of ``parameter`` may only stand with the listed values of others (None: unset)."""

    parameter: str
    value: FlagValue | None
    others: Mapping[str, tuple[FlagValue | None, ...]] = field(default_factory=dict)

    def holds(self, values: Chosen) -> bool:
        """Whether the value is not chosen, or all that it needs is."""
        if not same_value(values.get(self.parameter), self.value):
            return True
        return all(contains(allowed, values.get(name)) for name, allowed in self.others.items())

    def __str__(self) -> str:
        needs = " and ".join(f"{name} in {_listed(allowed)}" for name, allowed in self.others.items())
        return f"{self.parameter} {_shown(self.value)} needs {needs}"


def parse_rule(text: str) -> Comparison:
    """Read one comparison. Raises ``ValueError`` with the expected form."""
    match = _RULE.fullmatch(text)
    if match is None:
        raise ValueError("expected 'FLAG >= FLAG' or 'FLAG <= NUMBER' (one of >= <= > < == !=)")
    left, sign, right = match.groups()
    return Comparison(left, sign, float(right) if right[0].isdigit() else right)


def is_number(value: object) -> bool:
    """Whether a value counts as a number; booleans do not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def same_value(left: FlagValue | None, right: FlagValue | None) -> bool:
    """Equality that tells True from 1."""
    return left == right and isinstance(left, bool) == isinstance(right, bool)


def contains(values: tuple[FlagValue | None, ...], value: FlagValue | None) -> bool:
    """Membership that tells True from 1."""
    return any(same_value(value, v) for v in values)


def _shown(value: FlagValue | None) -> str:
    return "default" if value is None else str(value)


def _listed(values: tuple[FlagValue | None, ...]) -> str:
    return "[" + ", ".join(_shown(v) for v in values) + "]"
