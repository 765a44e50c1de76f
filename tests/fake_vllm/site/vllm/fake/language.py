"""A language of numbered words and a model of it: every answer is a function of the last token.

Token ``n`` is the word ``wn``. Other words get the number that their hash falls on, so that any text has tokens.
The model gives 20 likely next words with probabilities; ``noise`` bends them a little, as a lower precision does;
``garbage`` replaces them by others, as a broken kernel does. A text that it reads is likely to it, as if it had learnt
it: its next word is always among the likely ones, unless the model is garbage.
"""

import hashlib
import math
import random
import re

WORD = re.compile(r"\S+")
LIKELY = 20
REST = 0.05


def encode(text: str, vocab: int) -> list[int]:
    """Token ids of a text, one for each word."""
    return [_token(word, vocab) for word in WORD.findall(text)]


def decode(tokens: list[int]) -> str:
    """Text of token ids; each word has a space in front."""
    return "".join(f" w{token}" for token in tokens)


def _token(word: str, vocab: int) -> int:
    if word[0] == "w" and word[1:].isdigit() and int(word[1:]) < vocab:
        return int(word[1:])
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=4).digest(), "big") % vocab


class Model:
    """Next-token probabilities, remembered for each last token."""

    def __init__(self, vocab: int, noise: float = 0.0, garbage: bool = False) -> None:
        self.vocab = vocab
        self.noise = noise
        self.garbage = garbage
        self._cache: dict[int, list[tuple[int, float]]] = {}

    def likely(self, last: int) -> list[tuple[int, float]]:
        """The likely next tokens with their log probabilities, best first."""
        if last not in self._cache:
            self._cache[last] = self._likely(last, self.noise)
        return self._cache[last]

    def _likely(self, last: int, noise: float) -> list[tuple[int, float]]:
        draw = random.Random(f"{last} {'garbage' if self.garbage else 'model'}")
        bend = random.Random(f"{last} noise")
        tokens = draw.sample(range(self.vocab), min(LIKELY, self.vocab))
        logits = [-0.4 * rank + draw.random() + noise * bend.gauss(0, 1) for rank in range(len(tokens))]
        total = math.log(sum(math.exp(x) for x in logits)) - math.log(1 - REST)
        return sorted(((t, x - total) for t, x in zip(tokens, logits, strict=True)), key=lambda pair: -pair[1])

    def reading(self, last: int, token: int) -> list[tuple[int, float]]:
        """The likely next tokens where a text goes on with ``token``: it takes the place of one of the first five."""
        likely = list(self.likely(last))
        if not self.garbage and token not in dict(likely):
            unbent = self._likely(last, 0.0)
            displaced = unbent[hash((last, token)) % 5][0]
            likely = [(token if other == displaced else other, value) for other, value in likely]
        return likely

    def greedy(self, last: int) -> int:
        """The likeliest next token."""
        return self.likely(last)[0][0]

    def logprob(self, last: int, token: int) -> tuple[float, int]:
        """Log probability and rank (from 1) of ``token`` behind ``last``."""
        for rank, (candidate, value) in enumerate(self.likely(last), 1):
            if candidate == token:
                return value, rank
        return math.log(REST / max(1, self.vocab - LIKELY)), LIKELY + 1
