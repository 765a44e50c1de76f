"""A search space as axes with codes: the form that samplers work on.

Every axis lists its values once, the default included, and ordered values stay in order, so that a code is
a number with meaning. Two spellings of one configuration become one: a parameter that is inactive, and a
value that equals vLLM's known default, both turn into ``None`` ("not set").
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from autotune.search.types import Assignment
from autotune.space.config import FlagValue, LaunchConfig
from autotune.space.parameters import Parameter, SearchSpace

Value = FlagValue | None
Codes = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Axis:
    """One parameter with its canonical values; ``numeric`` when the code's order means something."""

    parameter: Parameter
    values: tuple[Value, ...]
    numeric: bool

    @property
    def name(self) -> str:
        return self.parameter.name

    def code(self, value: Value) -> int:
        """Position of a value; bool and int are told apart."""
        return next(i for i, v in enumerate(self.values) if _same(v, value))

    def holds(self, value: Value) -> bool:
        return any(_same(v, value) for v in self.values)


class Domain:
    """All assignments of a space. ``defaults`` are vLLM's known defaults here, by flag name.

    ``extra`` adds values that seeds use and the space does not list.
    """

    def __init__(
        self,
        space: SearchSpace,
        defaults: Mapping[str, FlagValue] | None = None,
        extra: Sequence[LaunchConfig] = (),
    ) -> None:
        self.space = space
        self._defaults = dict(defaults or {})
        self.axes = tuple(self._axis(p, extra) for p in space.parameters)
        self._by_name = {axis.name: axis for axis in self.axes}

    @property
    def size(self) -> int:
        """Number of assignments before conditions merge some of them."""
        return int(np.prod([float(len(axis.values)) for axis in self.axes])) if self.axes else 1

    def default(self) -> dict[str, Value]:
        """Every parameter at vLLM's default."""
        return {axis.name: None for axis in self.axes}

    def canonical(self, chosen: Assignment) -> dict[str, Value]:
        """The one spelling of an assignment."""
        known = {axis.name: self._unset_default(axis.name, chosen.get(axis.name)) for axis in self.axes}
        while idle := [a.name for a in self.axes if known[a.name] is not None and not self._active(a, known)]:
            known.update(dict.fromkeys(idle))
        return known

    def config(self, chosen: Assignment) -> LaunchConfig:
        """The launch config of an assignment, with the space's fixed flags."""
        kept = {name: value for name, value in self.canonical(chosen).items() if value is not None}
        return self.space.fixed.merged(LaunchConfig.of(kept))

    def assignment(self, config: LaunchConfig) -> dict[str, Value]:
        """The assignment that a config stands for; flags and values outside the space are not in it."""
        values = {axis.name: self._unset_default(axis.name, config.get(axis.name)) for axis in self.axes}
        return self.canonical({a.name: values[a.name] if a.holds(values[a.name]) else None for a in self.axes})

    def live_limits(self, chosen: Assignment) -> dict[str, int]:
        """Values of the live parameters, defaults by their value where it is known."""
        shown = {a.name: self._shown(a.name, chosen.get(a.name)) for a in self.axes if a.parameter.scope == "live"}
        return {name: int(value) for name, value in shown.items() if value is not None}

    def live_points(self, running: Assignment) -> Iterator[dict[str, Value]]:
        """Assignments that an engine booted as ``running`` can take live: its limits, or some lower."""
        axes = [a for a in self.axes if a.parameter.scope == "live"]
        for values in product(*([v for v in a.values if self._below(a, v, running)] for a in axes)):
            yield self.canonical({**running, **dict(zip((a.name for a in axes), values, strict=True))})

    def sample(self, rng: np.random.Generator) -> dict[str, Value]:
        """One assignment, every value of every axis equally likely."""
        return self.canonical({a.name: a.values[int(rng.integers(len(a.values)))] for a in self.axes})

    def draw(self, rng: np.random.Generator, count: int) -> Codes:
        """``count`` uniform assignments as codes, shape (count, axes)."""
        return self.merged(rng.integers(0, [len(a.values) for a in self.axes], (count, len(self.axes))))

    def around(self, row: Codes) -> Codes:
        """All assignments one change away from a row of codes."""
        rows = [
            [*row[:j], code, *row[j + 1 :]]
            for j, axis in enumerate(self.axes)
            for code in range(len(axis.values))
            if code != row[j]
        ]
        return self.merged(np.array(rows, dtype=np.int64).reshape(len(rows), len(self.axes)))

    def merged(self, rows: Codes) -> Codes:
        """Rows in canonical form: inactive axes at their default."""
        if not any(axis.parameter.requires for axis in self.axes):
            return rows
        return np.array([self.row(self.assigned(row)) for row in rows], dtype=np.int64)

    def row(self, chosen: Assignment) -> Codes:
        """Codes of an assignment in the order of the axes."""
        return np.array([axis.code(chosen.get(axis.name)) for axis in self.axes], dtype=np.int64)

    def assigned(self, row: Codes) -> dict[str, Value]:
        """The canonical assignment of a row of codes."""
        return self.canonical({a.name: a.values[int(c)] for a, c in zip(self.axes, row, strict=True)})

    def launch(self, row: Codes) -> LaunchConfig:
        """The launch config of a canonical row of codes."""
        values = {a.name: a.values[c] for a, c in zip(self.axes, row.tolist(), strict=True)}
        return self.space.fixed.merged(LaunchConfig.of({n: v for n, v in values.items() if v is not None}))

    def codes(self, chosen: Assignment) -> dict[str, int]:
        """Code per axis name."""
        return {axis.name: axis.code(chosen.get(axis.name)) for axis in self.axes}

    def decode(self, codes: Mapping[str, int]) -> dict[str, Value]:
        """The canonical assignment of codes."""
        return self.canonical({axis.name: axis.values[int(codes[axis.name])] for axis in self.axes})

    def _axis(self, parameter: Parameter, extra: Sequence[LaunchConfig]) -> Axis:
        values = list(parameter.values)
        values += [v for v in (c.get(parameter.name) for c in extra) if v is not None]
        kept: list[Value] = []
        for value in (self._unset_default(parameter.name, v) for v in values):
            if not any(_same(value, k) for k in kept):
                kept.append(value)
        if None not in kept:
            kept.insert(0, None)
        numeric = parameter.ordered or len(kept) == 2
        return Axis(parameter, tuple(self._in_order(parameter, kept)), numeric)

    def _in_order(self, parameter: Parameter, values: list[Value]) -> list[Value]:
        shown = [self._shown(parameter.name, v) for v in values]
        if not parameter.ordered or not all(_is_number(s) for s in shown if s is not None):
            return values
        keys = [float("-inf") if s is None else float(s) for s in shown]
        return [v for _, v in sorted(zip(keys, values, strict=True), key=lambda pair: pair[0])]

    def _below(self, axis: Axis, value: Value, running: Assignment) -> bool:
        limit, shown = self._shown(axis.name, running.get(axis.name)), self._shown(axis.name, value)
        if _is_number(limit) and _is_number(shown):
            return float(shown or 0) <= float(limit or 0)
        return _same(value, running.get(axis.name))

    def _active(self, axis: Axis, chosen: Assignment) -> bool:
        """Whether the axis counts; a condition may name a default by its value or by ``None``."""
        return all(
            any(
                _same(v, allowed) for v in (chosen.get(name), self._shown(name, chosen.get(name))) for allowed in values
            )
            for name, values in axis.parameter.requires.items()
        )

    def _unset_default(self, name: str, value: Value) -> Value:
        default = self._defaults.get(name)
        return None if value is not None and default is not None and _same(value, default) else value

    def _shown(self, name: str, value: Value) -> Value:
        return self._defaults.get(name) if value is None else value


def _same(left: Value, right: Value) -> bool:
    return left == right and isinstance(left, bool) == isinstance(right, bool)


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
