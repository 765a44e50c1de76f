"""Values that change what the model computes are left alone until someone answers for them.

A KV cache of four bits can run at full speed and answer noise. Where quality is not measured, a study
searches at the model's own precision; ``--allow-unverified-precision`` lifts that, and the recommendation
then says "speed only".
"""

from dataclasses import replace

from autotune.space.config import LaunchConfig
from autotune.space.parameters import Dropped, SearchSpace

REASON = "changes what the model computes, and quality is not measured (--allow-unverified-precision lifts this)"


def at_own_precision(space: SearchSpace) -> SearchSpace:
    """The space without its precision parameters and the seeds that use them."""
    names = {parameter.name for parameter in space.parameters if parameter.precision}
    seeds = [seed.without(*names) for seed in space.seeds]
    return replace(
        space,
        parameters=tuple(p for p in space.parameters if p.name not in names),
        seeds=tuple(dict.fromkeys(seed for seed in seeds if seed.flags)),
        dropped=(*space.dropped, *(Dropped(name, None, REASON) for name in sorted(names))),
    )


def changed_precision(space: SearchSpace, config: LaunchConfig) -> tuple[str, ...]:
    """Flags of ``config`` that change what the model computes."""
    names = {parameter.name for parameter in space.parameters if parameter.precision}
    return tuple(name for name in config.differences(space.fixed) if name in names)
