"""What may vary: parameters, and the search space that holds them for one machine and model.

A parameter's values are ordered as its file orders them; ``None`` stands for "leave the flag unset", which
means the space's fixed value where there is one and vLLM's own default otherwise. A *boot* parameter needs
a new engine. A *live* parameter can be lowered inside a running engine (``max-num-seqs``,
``max-num-batched-tokens``). A parameter with ``precision`` changes what the model computes, so its gain is
reported apart.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from autotune.space.config import FlagValue, LaunchConfig
from autotune.space.defaults import SEQS, TOKENS, Defaults
from autotune.space.rules import Comparison, Needs, contains


@dataclass(frozen=True, slots=True)
class Parameter:
    """One flag that may vary. ``name`` is the full flag name without dashes.

    ``requires`` holds conditions on other parameters: the parameter is active only while each named
    parameter has one of the listed values (``None`` = unset); inactive means "not set".
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
        return all(contains(allowed, chosen.get(name)) for name, allowed in self.requires.items())


@dataclass(frozen=True, slots=True)
class Dropped:
    """A parameter, value or seed that the space file holds and this machine, model or vLLM does not take.

    ``value`` is None where the whole parameter was dropped, or the default among its values.
    """

    parameter: str
    value: FlagValue | None
    reason: str


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """A space cut down to one machine, model and vLLM version.

    ``parameters`` stand in the file's order, which is the order of expected effect. ``seeds`` are
    configurations worth trying first (rules of thumb of the space file). ``fixed`` is passed to every
    engine. ``rules`` compare parameters, ``needs`` bind single values to values of other parameters.
    ``vllm_defaults`` is what vLLM uses where nothing is set. ``chosen_because`` says in one line why this
    file was matched.
    """

    name: str
    parameters: tuple[Parameter, ...]
    fixed: LaunchConfig = field(default_factory=LaunchConfig)
    seeds: tuple[LaunchConfig, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    chosen_because: str = ""
    rules: tuple[Comparison, ...] = ()
    needs: tuple[Needs, ...] = ()
    vllm_defaults: Defaults = field(default_factory=Defaults)

    def config(self, chosen: Mapping[str, FlagValue | None]) -> LaunchConfig:
        """The launch config of a full assignment: inactive and ``None`` parameters are left out."""
        kept = {p.name: chosen[p.name] for p in self.parameters if p.name in chosen and p.active(chosen)}
        return LaunchConfig.of({name: value for name, value in kept.items() if value is not None})

    def effective(self, config: LaunchConfig) -> LaunchConfig:
        """The one spelling of every config that launches the same engine, fixed flags included."""
        return self.vllm_defaults.effective(self.fixed.merged(config))

    def broken_rule(self, chosen: Mapping[str, FlagValue | None]) -> str | None:
        """The first rule that an assignment breaks, in words; None when it keeps all.

        Comparisons are judged on what the engine would use, conditions of values on what was chosen.
        """
        config = self.config(chosen)
        picked, resolved = dict(config.flags), self._resolved(config)
        broken = [str(need) for need in self.needs if not need.holds(picked)]
        broken += [str(rule) for rule in self.rules if not rule.holds(resolved)]
        return broken[0] if broken else None

    @property
    def defaults(self) -> dict[str, FlagValue]:
        """What leaving a parameter unset means, by flag: the fixed value, else vLLM's known default."""
        return {**self.vllm_defaults.by_flag(), **dict(self.fixed.flags)}

    def _resolved(self, config: LaunchConfig) -> dict[str, FlagValue | None]:
        merged = self.fixed.merged(config)
        seqs, tokens = self.vllm_defaults.batch(merged)
        return {**self.vllm_defaults.by_flag(), **dict(merged.flags), SEQS: seqs, TOKENS: tokens}
