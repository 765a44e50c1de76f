"""All rules, in the order in which a person wants to hear of them."""

from autotune.check.case import Rule
from autotune.check.rules import advice, environment, flags, gpu, memory, model, together, values

RULES: tuple[Rule, ...] = (
    *flags.RULES,
    *values.RULES,
    *model.RULES,
    *memory.RULES,
    *gpu.RULES,
    *together.RULES,
    *environment.RULES,
    *advice.RULES,
)
