"""How many tokens a word costs on this server, learned from two short requests.

Text prompts (chat, or no known vocabulary) are made of words; only the server knows its tokenizer and chat
template. Two answers' ``usage.prompt_tokens``, for few and for many words, give a line.
"""

import orjson

from autotune.load.ask import ask
from autotune.load.body import PATHS
from autotune.load.types import Target
from autotune.workload.prompts import TextScale, some_words
from autotune.workload.types import Workload

FEW, MANY = 20, 220
TIMEOUT_S = 60.0


def text_scale(target: Target, workload: Workload, *, seed: int) -> TextScale:
    """The scale of this server; one token a word where it does not answer (the load will say why)."""
    try:
        few, many = (_prompt_tokens(target, workload, words, seed) for words in (FEW, MANY))
    except (OSError, ValueError, KeyError, TypeError):
        return TextScale()
    per_word = (many - few) / (MANY - FEW)
    return TextScale(per_word, max(0.0, few - FEW * per_word)) if per_word > 0 else TextScale()


def _prompt_tokens(target: Target, workload: Workload, words: int, seed: int) -> int:
    text = some_words(seed, words)
    chat = workload.kind == "chat"
    prompt = {"messages": [{"role": "user", "content": text}]} if chat else {"prompt": text}
    limit = "max_completion_tokens" if chat else "max_tokens"
    body = orjson.dumps({"model": target.model, limit: 1, **prompt})
    return int(orjson.loads(ask(target, PATHS[workload.kind], body, limit_s=TIMEOUT_S))["usage"]["prompt_tokens"])
