"""The file that describes a search space, as pydantic models.

    schema: 1
    name: h200
    description: one line
    extends: default                    # take over another space's parameters, rules, seeds and fixed flags
    match: {kind: cuda, names: [H200], memory_gib: [130, 145], compute_capability: "9.0"}
    parameters:
      max-num-seqs: [128, 256, default]           # short form: values only
      kv-cache-dtype:
        values: [default, {value: fp8, when: {compute_capability: ">=8.9"}, why: ...}]
        precision: true
        when: {parameter: {enforce-eager: [default]}}
        why: one line
      max-num-batched-tokens: {low: 1024, high: 16384, log2: true, scope: live}
    omit: {block-size: why it is not searched}
    rules: ["max-num-batched-tokens >= max-num-seqs"]
    seeds: [{name: small chunks, flags: {max-num-batched-tokens: 2048}, why: ...}]
    fixed: {flags: {...}, env: {...}}

``default`` among values leaves the flag unset. ``256M`` counts as vLLM counts it (M = 2^20, m = 10^6). The
short spellings are brought to the long ones before the models see them, so that a mistake has one place.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    model_validator,
)

from autotune.space.conditions import parse_bounds
from autotune.space.config import FlagValue
from autotune.space.rules import Comparison, contains, parse_rule

DEFAULT = "default"

_FLAG = re.compile(r"[a-z][a-z0-9-]*")
_HUMAN = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
_STEPS = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_NOT_SEARCHED = {
    "max-model-len": "it is fixed from the workload's need",
    "host": "the tuner chooses the address",
    "port": "the tuner chooses the port",
    "model": "the model is an argument of the run",
}


def read_value(value: object) -> object:
    """A flag's value as vLLM means it: human integers as integers, mappings and lists as JSON text."""
    if isinstance(value, dict | list):
        return json.dumps(value, separators=(",", ":"), sort_keys=True)
    match = _HUMAN.fullmatch(value) if isinstance(value, str) else None
    return int(float(match[1]) * _STEPS[match[2]]) if match else value


def _read_choice(value: object) -> object:
    return None if value == DEFAULT else read_value(value)


def _check_flag(name: str) -> str:
    if not _FLAG.fullmatch(name):
        shown = name.lstrip("-").replace("_", "-").lower()
        raise ValueError(f"expected a flag's full name without dashes in front, such as {shown!r}")
    return name


def _check_specifier(text: str) -> str:
    try:
        SpecifierSet(text)
    except InvalidSpecifier as error:
        raise ValueError('expected a comparison such as ">=0.24" or ">=8.0,<9"') from error
    return text


def _check_bounds(text: str) -> str:
    parse_bounds(text)
    return text


def _listed(value: object) -> object:
    return value if isinstance(value, list) else [value]


Value = Annotated[StrictBool | StrictInt | StrictFloat | StrictStr, BeforeValidator(read_value)]
Choice = Annotated[StrictBool | StrictInt | StrictFloat | StrictStr | None, BeforeValidator(_read_choice)]
Flag = Annotated[StrictStr, AfterValidator(_check_flag)]
Specifier = Annotated[StrictStr, AfterValidator(_check_specifier)]
Bounds = Annotated[StrictStr, AfterValidator(_check_bounds)]
Names = Annotated[list[StrictStr], BeforeValidator(_listed), Field(min_length=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, protected_namespaces=())


class ModelCondition(_Strict):
    """What the model must be. ``head_size`` is a comparison, or a list of sizes."""

    dtype: Names | None = None
    quantized: StrictBool | None = None
    quantization: Names | None = None
    attention: Annotated[list[Literal["mha", "gqa", "mla", "none"]], BeforeValidator(_listed)] | None = None
    moe: StrictBool | None = None
    hybrid: StrictBool | None = None
    sliding_window: StrictBool | None = None
    head_size: Bounds | list[StrictInt] | None = None


class When(_Strict):
    """Conditions that must all hold. ``parameter`` maps other flags to the values they may have."""

    compute_capability: Specifier | None = None
    vllm: Specifier | None = None
    device_memory_gib: Bounds | None = None
    cores: Bounds | None = None
    model: ModelCondition | None = None
    parameter: dict[Flag, Annotated[list[Choice], BeforeValidator(_listed), Field(min_length=1)]] = Field(
        default_factory=dict
    )


class ValueEntry(_Strict):
    """One value, with its own conditions."""

    value: Choice
    when: When = Field(default_factory=When)
    why: StrictStr = ""


def _as_entry(item: object) -> object:
    return item if isinstance(item, ValueEntry | dict) else {"value": item}


class ParameterEntry(_Strict):
    """One parameter: ``values``, or a range from ``low`` to ``high`` by ``step`` or by doubling.

    Numbers count as ordered unless the file says otherwise.
    """

    values: list[Annotated[ValueEntry, BeforeValidator(_as_entry)]] | None = None
    low: StrictInt | StrictFloat | None = None
    high: StrictInt | StrictFloat | None = None
    step: StrictInt | StrictFloat | None = None
    log2: StrictBool = False
    scope: Literal["boot", "live"] = "boot"
    ordered: StrictBool | None = None
    precision: StrictBool = False
    when: When = Field(default_factory=When)
    why: StrictStr = ""

    @model_validator(mode="after")
    def _one_form(self) -> "ParameterEntry":
        if self.values is None:
            self._check_range()
        elif self.low is not None or self.high is not None:
            raise ValueError("expected either values or low and high, not both")
        elif not self.values:
            raise ValueError("expected at least one value (an empty list leaves nothing to try)")
        elif twice := _twice(self.values):
            raise ValueError(f"{twice} stands twice in the list")
        return self

    def _check_range(self) -> None:
        if self.low is None or self.high is None:
            raise ValueError("expected values, or low and high")
        if self.high < self.low:
            raise ValueError(f"empty range: low {self.low} is above high {self.high}")
        if self.log2 and (self.low <= 0 or self.step is not None):
            raise ValueError("log2 needs a low above 0 and no step")
        if not self.log2 and (self.step is None or self.step <= 0):
            raise ValueError("expected a step above 0, or log2: true")
        if not self.log2 and self.step is not None and (self.high - self.low) / self.step > 1000:
            raise ValueError("more than 1000 values; take a larger step or log2: true")

    def entries(self) -> list[ValueEntry]:
        """All values, ranges counted out."""
        return [ValueEntry(value=v) for v in self._range()] if self.values is None else list(self.values)

    def _range(self) -> Iterator[int | float]:
        low, high = self.low or 0, self.high or 0
        count = 0
        value = low
        while value <= high + 1e-9:
            yield value
            count += 1
            value = low * 2**count if self.log2 else round(low + count * (self.step or 1), 10)


def _twice(entries: list[ValueEntry]) -> str | None:
    seen: tuple[FlagValue | None, ...] = ()
    for entry in entries:
        if contains(seen, entry.value):
            return DEFAULT if entry.value is None else str(entry.value)
        seen = (*seen, entry.value)
    return None


def _as_parameter(item: object) -> object:
    if not isinstance(item, list | dict | ParameterEntry):
        raise ValueError("expected a list of values or a mapping")
    return {"values": item} if isinstance(item, list) else item


def _check_searchable(name: str) -> str:
    if name in _NOT_SEARCHED:
        raise ValueError(f"cannot be searched: {_NOT_SEARCHED[name]}")
    return _check_flag(name)


def _check_rule(text: str) -> str:
    parse_rule(text)
    return text


def _check_pair(value: object) -> object:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError("expected two numbers, such as [70, 90]")
    return value


SearchedFlag = Annotated[StrictStr, AfterValidator(_check_searchable)]


class Seed(_Strict):
    """A configuration to try first. ``default`` flags are left out."""

    name: StrictStr
    flags: dict[Flag, Choice] = Field(min_length=1)
    why: StrictStr = ""


class Fixed(_Strict):
    """What every engine of the study gets."""

    flags: dict[Flag, Value] = Field(default_factory=dict)
    env: dict[StrictStr, StrictStr] = Field(default_factory=dict)


class Match(_Strict):
    """Which devices the space was written for. ``names`` are words of the device's name."""

    kind: Literal["cuda", "cpu"]
    names: list[StrictStr] = Field(default_factory=list)
    memory_gib: Annotated[tuple[float, float], BeforeValidator(_check_pair)] | None = None
    compute_capability: Annotated[StrictStr, Field(pattern=r"^\d+\.\d+$")] | None = None

    @property
    def capability(self) -> tuple[int, int] | None:
        """Compute capability as numbers."""
        if self.compute_capability is None:
            return None
        major, minor = self.compute_capability.split(".")
        return int(major), int(minor)


class SpaceFile(_Strict):
    """One space file, after ``extends`` has been followed."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    name: StrictStr = ""
    description: StrictStr = ""
    extends: StrictStr | None = None
    match: Match | None = None
    parameters: dict[SearchedFlag, Annotated[ParameterEntry, BeforeValidator(_as_parameter)]]
    omit: dict[Flag, StrictStr] = Field(default_factory=dict)
    rules: list[Annotated[StrictStr, AfterValidator(_check_rule)]] = Field(default_factory=list)
    seeds: list[Seed] = Field(default_factory=list)
    fixed: Fixed = Field(default_factory=Fixed)

    _origin: Mapping[str, str] = PrivateAttr(default_factory=dict)

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """The rules, parsed."""
        return tuple(parse_rule(rule) for rule in self.rules)

    @property
    def origin(self) -> Mapping[str, str]:
        """``FILE:LINE`` of every parameter that a person's own file states."""
        return self._origin

    def written_at(self, parameter: str) -> str | None:
        """``FILE:LINE`` where a person's own file names the parameter; None where a shipped space does."""
        return self._origin.get(parameter)

    def with_origin(self, origin: Mapping[str, str]) -> "SpaceFile":
        """This file with ``FILE:LINE`` by parameter, for messages about a person's own file."""
        copy = self.model_copy()
        copy._origin = dict(origin)
        return copy
