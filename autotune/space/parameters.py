"""What may vary: parameters, and the search space that holds them for one machine and model.

A parameter's values are ordered as its file orders them; ``None`` stands for "leave the flag at vLLM's
default". A *boot* parameter needs a new engine. A *live* parameter can be lowered inside a running
engine (``max-num-seqs``, ``max-num-batched-tokens``). A parameter with ``precision`` changes what the
model computes, so its gain is reported apart.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from autotune.space.config import FlagValue, LaunchConfig


@dataclass(frozen=True, slots=True)
class Parameter:
    """One flag that may vary. ``name`` is the full flag name without dashes.

    ``requires`` holds conditions on other parameters: the parameter is active only while each named
    parameter has one of the listed values (``None`` = vLLM's default); inactive means "not set".
    """

    name: str
    values: tuple[FlagValue | None, ...]
    scope: Literal["boot", "live"] = "boot"
    ordered: bool = False
    precision: bool = False
    requires: Mapping[str, tuple[FlagValue | None, ...]] = field(default_factory=dict)
    why: str = ""

    def active(self, chosen: Mapping[str, FlagValue | None]) -> bool:
        """Whether the parameter counts, given the other parameters' chosen values."""
        return all(chosen.get(name) in allowed for name, allowed in self.requires.items())


@dataclass(frozen=True, slots=True)
class Dropped:
    """A parameter or value that the space file holds and this machine, model or vLLM does not take."""

    parameter: str
    value: FlagValue | None
    reason: str


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """A space cut down to one machine, model and vLLM version.

    ``seeds`` are configurations worth trying first (rules of thumb of the space file). ``fixed`` is
    passed to every engine. ``chosen_because`` says in one line why this file was matched.
    """

    name: str
    parameters: tuple[Parameter, ...]
    fixed: LaunchConfig = LaunchConfig()
    seeds: tuple[LaunchConfig, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    chosen_because: str = ""

    def config(self, chosen: Mapping[str, FlagValue | None]) -> LaunchConfig:
        """The launch config of a full assignment: inactive and ``None`` parameters are left out."""
        kept = {p.name: chosen[p.name] for p in self.parameters if p.name in chosen and p.active(chosen)}
        return LaunchConfig.of({name: value for name, value in kept.items() if value is not None})
