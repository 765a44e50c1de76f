"""How much quality a faster configuration may cost, and the decision.

A level is two limits: the mean KL divergence in nats a token, and the rise of perplexity. For scale, figures that
others published, all against the same model at 16 bits:

    llama.cpp, Llama 3 8B, WikiText-2:   8-bit weights (Q8_0) KL 0.0014 · 6-bit 0.006 · 5-bit 0.011 ·
                                         4-bit (Q4_K_M) 0.031, perplexity +2.8 % · 3-bit 0.10
    AWQ (arXiv 2306.00978), Llama-2-7B:  4-bit AWQ perplexity 5.47 → 5.60, +2.4 % · 4-bit GPTQ 5.69, +4.0 %
    float32 against bfloat16 on our own SmolLM2-135M: KL 0.0008, the noise of arithmetic

So ``tiny`` takes 8-bit weights and KV caches of models of usual size, ``small`` also 4-bit weights made with care, and
``any`` still refuses what answers noise. Small models lose more: SmolLM2-135M loses 0.02 with an fp8 KV cache.

The decision is on the interval's side. All of it below the limit: within. All above: over. Across it: unsure, which is
not exported either; more text narrows it. Never is less asked of a candidate than the reference reaches against
itself. The decoding path has few positions, so it can convict (its interval above the limit), not acquit.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from autotune.errors import UsageError
from autotune.quality.compare import Comparison, Estimate

Verdict = Literal["within", "over", "unsure"]
DEFAULT_LEVEL = "tiny"
# A model whose perplexity is this high has not learnt the language of the texts: its weights are random, or broken.
KNOWS_NOTHING = 1000.0
RISE = "perplexity"
LARGEST_EXCESS = 10.0


@dataclass(frozen=True, slots=True)
class Level:
    """``kl`` in nats a token; ``perplexity`` the largest rise, 0.02 being two per cent."""

    name: str
    kl: float
    perplexity: float


LEVELS: Mapping[str, Level] = {
    level.name: level
    for level in (
        Level("none", 0.002, 0.002),
        Level("tiny", 0.02, 0.02),
        Level("small", 0.1, 0.05),
        Level("any", 1.0, 1.0),
    )
}


@dataclass(frozen=True, slots=True)
class Judgement:
    """``excess`` is how far the worst measure is above its limit, as a fraction of it; 0 where it is within."""

    verdict: Verdict
    reason: str
    excess: float = 0.0


def find_level(name: str) -> Level:
    """The level by its name. Raises ``UsageError``."""
    if name not in LEVELS:
        raise UsageError(f"--max-quality-loss {name!r} is unknown. Use one of: {', '.join(LEVELS)}.")
    return LEVELS[name]


def judge(found: Comparison, level: Level, noise: Comparison | None = None) -> Judgement:
    """Whether the loss is within the level; ``noise`` is the reference against itself."""
    kl = max(level.kl, noise.kl.high if noise else 0.0)
    rise = max(level.perplexity, noise.perplexity_ratio.high - 1 if noise else 0.0)
    decoding = max(level.kl, noise.decoding_kl.high if noise else 0.0)
    measures = [("KL", found.kl, kl), (RISE, _less_one(found.perplexity_ratio), rise)]
    over = [m for m in (*measures, ("KL while decoding", found.decoding_kl, decoding)) if m[1].low > m[2]]
    if over:
        name, estimate, limit = max(over, key=lambda m: m[1].low / m[2])
        excess = min(estimate.low / limit - 1, LARGEST_EXCESS)
        return Judgement("over", f"{_text(name, estimate, limit)}: above '{level.name}'", excess)
    wide = [m for m in measures if m[1].high > m[2]]
    if wide:
        name, estimate, limit = max(wide, key=lambda m: m[1].high / m[2])
        excess = min(estimate.high / limit - 1, LARGEST_EXCESS)
        reason = f"{_text(name, estimate, limit)}: not surely within '{level.name}'"
        return Judgement("unsure", reason, excess)
    return Judgement("within", f"{_text(*measures[0])}: within '{level.name}'")


def _less_one(ratio: Estimate) -> Estimate:
    return Estimate(ratio.value - 1, ratio.low - 1, ratio.high - 1)


def _text(name: str, estimate: Estimate, limit: float) -> str:
    if name == RISE:
        value, low, high = (f"{100 * x:+.1f}" for x in (estimate.value, estimate.low, estimate.high))
        return f"{name} {value} % ({low} to {high} %), limit {100 * limit:+.1f} %"
    return f"{name} {estimate.value:.4f} ({estimate.low:.4f} to {estimate.high:.4f}), limit {limit:.4f}"
