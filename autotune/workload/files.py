"""Workload files: YAML that people write, checked with pydantic, told apart by line.

    description: text
    kind: completion | chat
    shapes: [{name, weight, input: LENGTHS, output: LENGTHS, prefix: {tokens, groups}}]
    sampling: {temperature: 0.7}
    ignore_eos: true
    extra: {...}                         merged into every request body
    arrival: {process: poisson | gamma | constant | ramp, rate_per_s, burstiness, start_per_s, ramp_s}

LENGTHS is ``{distribution: fixed, tokens}``, ``{distribution: uniform, min, max}``,
``{distribution: lognormal, median, sigma, min, max}`` or ``{distribution: empirical, values: [...]}``.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError, model_validator

from autotune.errors import UsageError
from autotune.workload.arrivals import Arrival, Constant, Gamma, Poisson, Ramp
from autotune.workload.lengths import Lengths
from autotune.workload.types import RequestShape, SharedPrefix, Workload

# Longer than any context there is; a slip of the finger would fill the client's memory instead.
MOST_TOKENS = 10_000_000
_Tokens = Annotated[int, Field(ge=1, le=MOST_TOKENS)]


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class _Fixed(_File):
    distribution: Literal["fixed"]
    tokens: _Tokens

    def value(self) -> Lengths:
        return Lengths.fixed(self.tokens)


class _Uniform(_File):
    distribution: Literal["uniform"]
    min: _Tokens
    max: _Tokens

    @model_validator(mode="after")
    def _ordered(self) -> "_Uniform":
        _check_order(self.min, self.max)
        return self

    def value(self) -> Lengths:
        return Lengths("uniform", self.min, self.max)


class _LogNormal(_File):
    distribution: Literal["lognormal"]
    median: PositiveFloat
    sigma: PositiveFloat
    min: _Tokens
    max: _Tokens

    @model_validator(mode="after")
    def _ordered(self) -> "_LogNormal":
        _check_order(self.min, self.max)
        return self

    def value(self) -> Lengths:
        return Lengths.lognormal(self.median, self.sigma, self.min, self.max)


class _Empirical(_File):
    distribution: Literal["empirical"]
    values: Annotated[tuple[_Tokens, ...], Field(min_length=1)]

    def value(self) -> Lengths:
        return Lengths.empirical(self.values)


def _check_order(low: int, high: int) -> None:
    if low > high:
        raise ValueError(f"min {low} is above max {high}")


_Lengths = Annotated[_Fixed | _Uniform | _LogNormal | _Empirical, Field(discriminator="distribution")]


class _Prefix(_File):
    tokens: _Tokens
    groups: PositiveInt = 1


class _Shape(_File):
    name: str
    input: _Lengths
    output: _Lengths
    weight: PositiveFloat = 1.0
    prefix: _Prefix | None = None

    def value(self) -> RequestShape:
        prefix = SharedPrefix(self.prefix.tokens, self.prefix.groups) if self.prefix else None
        return RequestShape(self.name, self.input.value(), self.output.value(), self.weight, prefix)


class _Arrival(_File):
    process: Literal["poisson", "gamma", "constant", "ramp"] = "poisson"
    rate_per_s: PositiveFloat
    burstiness: PositiveFloat = 1.0
    start_per_s: PositiveFloat | None = None
    ramp_s: PositiveFloat = 30.0

    def value(self) -> Arrival:
        if self.process == "gamma":
            return Gamma(self.rate_per_s, self.burstiness)
        if self.process == "constant":
            return Constant(self.rate_per_s)
        if self.process == "ramp":
            return Ramp(self.start_per_s or self.rate_per_s / 10, self.rate_per_s, self.ramp_s)
        return Poisson(self.rate_per_s)


class _WorkloadFile(_File):
    description: str = ""
    kind: Literal["completion", "chat"] = "completion"
    shapes: Annotated[tuple[_Shape, ...], Field(min_length=1)]
    sampling: dict[str, float | int] = Field(default_factory=lambda: {"temperature": 0.0})
    ignore_eos: bool = True
    extra: dict[str, Any] = Field(default_factory=dict)
    arrival: _Arrival | None = None


def parse_workload(text: str, *, name: str, source: str) -> Workload:
    """The workload in a YAML text. Raises UsageError that names ``source``, the line and the problem."""
    try:
        parsed = _WorkloadFile.model_validate(yaml.safe_load(text) or {})
    except yaml.YAMLError as error:
        raise UsageError(f"{source} is not YAML: {' '.join(str(error).split())}") from None
    except ValidationError as error:
        raise UsageError(_explain(error, text, source)) from None
    return Workload(
        name=name,
        shapes=tuple(shape.value() for shape in parsed.shapes),
        description=parsed.description,
        kind=parsed.kind,
        sampling=parsed.sampling,
        ignore_eos=parsed.ignore_eos,
        extra=parsed.extra,
        arrival=parsed.arrival.value() if parsed.arrival else None,
    )


def read_text(path: Path) -> str:
    """A file's text. Raises UsageError where it can't be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read workload file {path}: {error}") from None


def _explain(error: ValidationError, text: str, source: str) -> str:
    first, *others = error.errors()
    where = ".".join(str(part) for part in first["loc"]) or "the file"
    more = f" ({len(others)} more problem{'s' if len(others) > 1 else ''})" if others else ""
    return f"{source}:{_line(text, first['loc'])}: {where}: {first['msg']}{more}"


def _line(text: str, location: tuple[int | str, ...]) -> int:
    """The line of the deepest node that exists on the path to ``location``."""
    node, line = yaml.compose(text), 1
    for part in location:
        child = _child(node, part)
        if child is not None:
            node = child
            line = node.start_mark.line + 1
    return line


def _child(node: yaml.Node | None, part: int | str) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in node.value if key.value == part), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        child: yaml.Node = node.value[part]
        return child
    return None
