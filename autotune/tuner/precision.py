"""Which flags change what the model computes, and the precision class of a configuration.

A KV cache of four bits can run at full speed and answer noise. Configurations that compute the same have the same
*precision class*: the values of the flags below. Quality is measured once for each class, never again for other limits.
Where it cannot be measured at all, a study keeps to the model's own precision; ``--allow-unverified-precision`` lifts
that, and the recommendation then says "speed only".
"""

from dataclasses import dataclass, replace

from autotune.space.config import FlagValue, LaunchConfig
from autotune.space.parameters import Dropped, SearchSpace
from autotune.tuner.models import ModelChoice

PRECISION = (
    "calculate-kv-scales",
    "dtype",
    "hf-overrides",
    "kv-cache-dtype",
    "kv-cache-dtype-skip-layers",
    "mamba-cache-dtype",
    "mamba-ssm-cache-dtype",
    "model",
    "quantization",
    "quantization-config",
)
# Equal precision, other arithmetic: a kernel can be broken, too.
KERNELS = ("attention-backend", "linear-backend", "moe-backend")
AS_PUBLISHED = ("auto", "none")


@dataclass(frozen=True, slots=True)
class PrecisionClass:
    """The flags that decide what is computed, with their values; none for the model as published."""

    flags: tuple[tuple[str, FlagValue], ...] = ()

    @property
    def published(self) -> bool:
        """Whether this is the model as published, with vLLM's own choice of kernels."""
        return not self.flags

    @property
    def precision(self) -> tuple[tuple[str, FlagValue], ...]:
        """The flags without those that only choose kernels."""
        return tuple((name, value) for name, value in self.flags if name not in KERNELS)

    @property
    def key(self) -> str:
        """Names the class in the store; empty for the model as published."""
        return "" if self.published else LaunchConfig(self.flags).key()

    def __str__(self) -> str:
        return str(LaunchConfig(self.flags)) if self.flags else "as published"


def guarded(space: SearchSpace) -> frozenset[str]:
    """Flags whose values are answered for: those above, and what the space marks."""
    return frozenset((*PRECISION, *KERNELS, *(p.name for p in space.parameters if p.precision)))


def precision_class(space: SearchSpace, config: LaunchConfig) -> PrecisionClass:
    """The class of a configuration, fixed flags included."""
    names = guarded(space)
    chosen = space.fixed.merged(config).flags
    return PrecisionClass(
        tuple((n, v) for n, v in chosen if n in names and v is not False and str(v).lower() not in AS_PUBLISHED)
    )


def as_published(space: SearchSpace, config: LaunchConfig) -> LaunchConfig:
    """The configuration with the model as published."""
    return space.fixed.merged(config).without(*guarded(space))


def unmeasurable(model: ModelChoice, fixed: LaunchConfig) -> str | None:
    """Why quality cannot be measured whatever is booted, None where it can."""
    if model.demo:
        return "the demonstration model has random weights"
    if fixed.get("load-format") == "dummy":
        return "--load-format dummy gives random weights"
    return None


def at_own_precision(space: SearchSpace, because: str) -> SearchSpace:
    """The space without its precision parameters and the seeds that use them."""
    names = {p.name for p in space.parameters} & guarded(space)
    seeds = [seed.without(*names) for seed in space.seeds]
    reason = f"changes what the model computes, and {because} (--allow-unverified-precision lifts this)"
    return replace(
        space,
        parameters=tuple(p for p in space.parameters if p.name not in names),
        seeds=tuple(dict.fromkeys(seed for seed in seeds if seed.flags)),
        dropped=(*space.dropped, *(Dropped(name, None, reason) for name in sorted(names))),
    )


def changed_precision(space: SearchSpace, config: LaunchConfig) -> tuple[str, ...]:
    """Guarded flags of ``config`` that differ from the baseline's."""
    names = guarded(space)
    return tuple(name for name in space.fixed.merged(config).differences(space.fixed) if name in names)
