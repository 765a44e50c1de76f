"""How long one step takes, and what throughput follows: a queueing model simple enough to know its optimum.

    step = factor × (step_s + per_seq_s × decoding + per_prefill_token_s × prompt tokens
                     + per_seq_over_knee_s × max(0, decoding - knee_seqs))

One step gives one token to each request that decodes and spends the rest of ``max-num-batched-tokens`` on prompts.
``max-num-seqs`` limits how many run; so does the KV cache. Below the knee throughput grows with the batch; above it,
each further request costs more than it brings.
"""

import math
from collections.abc import Mapping

from vllm.fake.behaviour import Perf


def step_factor(perf: Perf, flags: Mapping[str, object]) -> float:
    """The product of the factors of all flags that have one at their value."""
    factor = 1.0
    for flag, by_value in perf.factors.items():
        value = flags.get(flag)
        text = str(value).lower() if isinstance(value, bool) else str(value)
        factor *= by_value.get(text, 1.0)
    return factor


def step_s(perf: Perf, factor: float, decoding: int, prompt_tokens: int) -> float:
    """Seconds of a step with so many decoding requests and so many prompt tokens."""
    over = max(0, decoding - perf.knee_seqs)
    return factor * (
        perf.step_s
        + perf.per_seq_s * decoding
        + perf.per_prefill_token_s * prompt_tokens
        + perf.per_seq_over_knee_s * over
    )


def steady_output_tps(
    perf: Perf, flags: Mapping[str, object], clients: int, prompt_tokens: int, output_tokens: int, kv_tokens: int
) -> float:
    """Output tokens per second that a closed loop of ``clients`` settles at, from the model alone.

    Each request takes ceil(prompt / step budget) steps to read its prompt and one per further token, so that in the
    steady state a share of the running requests reads prompts while the others decode.
    """
    per_request = prompt_tokens + output_tokens
    running = max(1, min(clients, int(str(flags["max-num-seqs"])), kv_tokens // per_request))
    budget = int(str(flags["max-num-batched-tokens"]))
    prompt_steps = max(1.0, running * prompt_tokens / max(1, budget) / output_tokens)
    decoding = running * (output_tokens - 1) / (output_tokens - 1 + math.ceil(prompt_steps))
    per_step_prompt = prompt_tokens * decoding / output_tokens
    return decoding / step_s(perf, step_factor(perf, flags), round(decoding), round(per_step_prompt))
