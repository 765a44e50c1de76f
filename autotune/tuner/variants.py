"""Other checkpoints of the same model (FP8, AWQ, GPTQ …) as one more search dimension.

A variant is the value of a flag of ours, ``model``, that never reaches vLLM as a flag: the engine is given the
checkpoint in the model's place. Flags that quantize while they load stay out of its way, because a quantized
checkpoint has its own method. The guard compares a variant as it compares any other precision.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from autotune.errors import UsageError
from autotune.space.config import LaunchConfig
from autotune.space.parameters import Parameter, SearchSpace
from autotune.tuner.models import ModelChoice, choose_model

VARIANT = "model"
LOADS_OTHERWISE = ("quantization", "dtype", "load-format")


def choose_variants(model: ModelChoice, given: Iterable[str]) -> dict[str, ModelChoice]:
    """The variants by what vLLM is given. Raises ``UsageError`` for what is no checkpoint of the same model."""
    chosen = {}
    for text in given:
        variant = choose_model(text)
        if variant.serve == model.serve:
            raise UsageError(f"--variant {text} is the model itself. Give another checkpoint of it.")
        _refuse_another_model(model, variant, text)
        chosen[variant.serve] = variant
    return chosen


def with_variants(space: SearchSpace, variants: Mapping[str, ModelChoice]) -> SearchSpace:
    """The space with a choice of checkpoints, each tried early."""
    if not variants:
        return space
    why = "Another checkpoint of the model: other weights, so other memory, speed and answers."
    choice = Parameter(VARIANT, (None, *variants), precision=True, why=why)
    others = tuple(
        replace(p, requires={**p.requires, VARIANT: (None,)}) if p.name in LOADS_OTHERWISE else p
        for p in space.parameters
    )
    seeds = tuple(LaunchConfig.of({VARIANT: name}) for name in variants)
    return replace(space, parameters=(choice, *others), seeds=(*seeds, *space.seeds))


def _refuse_another_model(model: ModelChoice, variant: ModelChoice, given: str) -> None:
    """Token ids must mean the same, and the layers must be the same number."""
    for name in ("vocab_size", "layers", "hidden_size"):
        here, there = getattr(model.facts, name), getattr(variant.facts, name)
        if here is not None and there is not None and here != there:
            raise UsageError(
                f"--variant {given} is no checkpoint of {model.name}: its {name.replace('_', ' ')} is {there}, "
                f"not {here}. Tune another model in a study of its own."
            )
