"""Fresh prompts: the requests of one point, in order, that no prefix cache has seen.

Every stream of requests is seeded by (study seed, point id, client number), so the same point can be
replayed exactly and two points never share a prompt. A prompt of token ids starts with four ids that spell
the request's number under a key of its point: no two requests of a point begin alike, and two points only
by a chance of 1 in vocabulary⁴. What a workload shares, a point shares inside itself: its prefix texts are
made from the point's seed too. A trace that is over starts again with other contents. The user's own texts
can't be made anew: each gets a short mark of its point and round in front, so that no earlier point or round
has warmed a cache for it, while texts that begin alike still share their beginning.

Ids come from the middle 85 % of the vocabulary, where tokenizers keep neither control tokens (first ids)
nor added special tokens (last ids); ``avoid`` names further ids. Lengths are drawn stratified
(``lengths.stratified``), a block of 64 requests at a time.

Chat messages, and completions where no vocabulary size is known, are text made of short common words;
``TextScale`` says how many tokens a word costs on this server.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.workload.lengths import stratified
from autotune.workload.types import RequestShape, Workload

Ids = npt.NDArray[np.int32]
Prompt = Ids | str | tuple[Mapping[str, Any], ...]
BLOCK = 64
UNIQUE_TOKENS = 4
CANDIDATES = 4


@dataclass(frozen=True, slots=True, eq=False)
class PlannedRequest:
    """One request to send. ``prompt_tokens`` is the intended length; 0 for the user's own texts.

    ``partial`` marks a request of the first wave of a closed loop: it starts as if part of its answer had
    been written already, so it counts as load but not as a latency sample.
    """

    index: int
    prompt: Prompt
    prompt_tokens: int
    output_tokens: int
    partial: bool = False


@dataclass(frozen=True, slots=True)
class TextScale:
    """Tokens of a text on one server: ``overhead_tokens`` (chat template) plus ``tokens_per_word`` × words."""

    tokens_per_word: float = 1.0
    overhead_tokens: float = 0.0

    def words(self, tokens: int) -> int:
        """How many words make about this many tokens; at least one."""
        return max(1, round((tokens - self.overhead_tokens) / self.tokens_per_word))


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The token ids that prompts are made of."""

    low: int
    high: int
    avoid: frozenset[int] = frozenset()

    @classmethod
    def of_size(cls, vocab_size: int, avoid: frozenset[int] = frozenset()) -> "Vocabulary":
        """The middle of a vocabulary of this size."""
        return cls(int(vocab_size * 0.1), max(int(vocab_size * 0.95), int(vocab_size * 0.1) + 2), avoid)

    def draw(self, rng: np.random.Generator, n: int) -> Ids:
        """``n`` ids."""
        ids = rng.integers(self.low, self.high, n, dtype=np.int32)
        if self.avoid:
            bad = np.isin(ids, np.fromiter(self.avoid, np.int32))
            ids[bad] = self._replacement()
        return ids

    def number(self, value: int) -> Ids:
        """``value`` as the first ids of a prompt; different values below size⁴ give different ids."""
        size = self.high - self.low
        return np.array([self.low + value // size**i % size for i in range(UNIQUE_TOKENS)], dtype=np.int32)

    def _replacement(self) -> int:
        return next(i for i in range(self.low, self.high) if i not in self.avoid)


class PromptStream:
    """The requests of one client in one point, without end.

    ``vocab_size`` None makes text prompts. With ``clients`` > 1, client ``client`` of them makes its own
    share: its own numbers for generated shapes, every ``clients``-th request of a trace.
    """

    def __init__(
        self,
        workload: Workload,
        *,
        seed: int,
        point_id: str,
        vocab_size: int | None,
        avoid: frozenset[int] = frozenset(),
        client: int = 0,
        clients: int = 1,
        text: TextScale | None = None,
    ) -> None:
        self.workload = workload
        self._vocabulary = Vocabulary.of_size(vocab_size, avoid) if vocab_size else None
        self._text = text or TextScale()
        self._client, self._clients = client, clients
        self._point_seed = _digest("point", seed, point_id)
        self._lengths_rng = np.random.default_rng(_digest("lengths", seed, point_id, client))
        self._content_rng = np.random.Generator(np.random.SFC64(_digest("content", seed, point_id, client)))
        self._prefixes: dict[tuple[str, int, int], Ids] = {}
        self._repeated = Counter(block for request in workload.trace for block in request.blocks)
        self._plans = self._plan()
        self._index = 0

    def next(self) -> PlannedRequest:
        """The next request."""
        return self._request(next(self._plans), 0)

    def first_wave(self, ages: Sequence[float]) -> Iterator[PlannedRequest]:
        """One request in the middle of its life for each of ``ages``.

        An age in [0, 1) is the share of the answer that counts as written: that many tokens move from the answer into
        the prompt, which is what a running request looks like to an engine. Long answers run for longer, so that
        more of those which run at any moment are long: generated lengths are drawn in proportion to their answers.
        """
        for age, plan in zip(ages, self._running(len(ages)), strict=False):
            yield self._request(plan, 0 if plan.given is not None else int(age * plan.output_tokens))

    def _running(self, count: int) -> Iterator["_Plan"]:
        if not self.workload.shapes:
            return self._plans
        found = list(islice(self._plans, CANDIDATES * count))
        tokens = np.cumsum([plan.output_tokens for plan in found])
        at = (np.arange(count) + 0.5) / count * tokens[-1]
        return (found[int(i)] for i in np.searchsorted(tokens, at))

    def _request(self, plan: "_Plan", moved: int) -> PlannedRequest:
        """The planned request with its first ``moved`` answer tokens in the prompt."""
        request = PlannedRequest(
            self._index,
            self._prompt(plan, moved),
            plan.input_tokens + moved,
            plan.output_tokens - moved,
            partial=moved > 0,
        )
        self._index += 1
        return request

    def _plan(self) -> Iterator["_Plan"]:
        rounds = 0
        while True:
            yield from self._block() if self.workload.shapes else self._round(rounds)
            rounds += 1

    def _round(self, number: int) -> Iterator["_Plan"]:
        """This client's share of the trace or the user's requests, for the ``number``-th time."""
        mine = slice(self._client, None, self._clients)
        for trace in self.workload.trace[mine]:
            yield _Plan(trace.input_tokens, trace.output_tokens, blocks=trace.blocks, round=number)
        for user in self.workload.requests[mine]:
            yield _Plan(0, user.output_tokens, given=user.prompt, round=number)

    def _block(self) -> Iterator["_Plan"]:
        shapes, rng = self.workload.shapes, self._lengths_rng
        edges = np.cumsum([shape.weight for shape in shapes])
        chosen = np.searchsorted(edges / edges[-1], stratified(rng, BLOCK), side="right")
        unit_in, unit_out, unit_group = (stratified(rng, BLOCK) for _ in range(3))
        inputs = [shape.input.at(unit_in) for shape in shapes]
        outputs = [shape.output.at(unit_out) for shape in shapes]
        for i, which in enumerate(np.minimum(chosen, len(shapes) - 1)):
            prefix = shapes[which].prefix
            group = int(unit_group[i] * prefix.groups) if prefix else 0
            yield _Plan(int(inputs[which][i]), int(outputs[which][i]), shape=shapes[which], group=group)

    def _prompt(self, plan: "_Plan", moved: int) -> Prompt:
        if plan.given is not None:
            return _marked(plan.given, _digest("mark", self._point_seed, plan.round))
        tokens = plan.input_tokens + moved
        if self._vocabulary is None or self.workload.kind == "chat":
            return self._words(plan, tokens)
        prefix = self._prefix(plan)[: max(0, tokens - UNIQUE_TOKENS)]
        number = self._index * self._clients + self._client
        key = (self._point_seed + number) % (self._vocabulary.high - self._vocabulary.low) ** UNIQUE_TOKENS
        own = self._vocabulary.draw(self._content_rng, tokens - len(prefix))
        own[:UNIQUE_TOKENS] = self._vocabulary.number(key)[: len(own)]
        return np.concatenate((prefix, own)) if len(prefix) else own

    def _prefix(self, plan: "_Plan") -> Ids:
        assert self._vocabulary is not None
        if plan.blocks:
            size = self.workload.block_tokens
            parts = [self._block_ids(block, plan.round, size) for block in plan.blocks]
            return np.concatenate(parts)[: max(0, plan.input_tokens - UNIQUE_TOKENS)]
        if plan.shape and plan.shape.prefix:
            return self._shared(plan.shape.name, plan.group, plan.shape.prefix.tokens)
        return np.empty(0, dtype=np.int32)

    def _shared(self, name: str, group: int, tokens: int) -> Ids:
        assert self._vocabulary is not None
        key = (name, group, tokens)
        if key not in self._prefixes:
            rng = np.random.default_rng(_digest("shared", self._point_seed, *key))
            self._prefixes[key] = self._vocabulary.draw(rng, tokens)
        return self._prefixes[key]

    def _block_ids(self, block: int, round_: int, tokens: int) -> Ids:
        """A trace's block: only those that occur again are worth remembering."""
        if self._repeated.get(block, 0) > 1:
            return self._shared(f"block {round_}", block, tokens)
        assert self._vocabulary is not None
        return self._vocabulary.draw(self._content_rng, tokens)

    def _words(self, plan: "_Plan", tokens: int) -> str | tuple[Mapping[str, Any], ...]:
        shared = ""
        prefix = plan.shape.prefix if plan.shape else None
        if prefix and plan.shape:
            rng = np.random.default_rng(_digest("shared", self._point_seed, plan.shape.name, plan.group))
            shared = _text(rng, self._text.words(min(prefix.tokens, tokens)))
            tokens = max(1, tokens - prefix.tokens)
        number = self._index * self._clients + self._client
        own = f"{(self._point_seed + number) % 10**8} " + _text(self._content_rng, self._text.words(tokens))
        if self.workload.kind == "completion":
            return shared + own
        system = ({"role": "system", "content": shared},) if shared else ()
        return (*system, {"role": "user", "content": own})


@dataclass(frozen=True, slots=True)
class _Plan:
    """Lengths and sharing of one request, before its prompt is made."""

    input_tokens: int
    output_tokens: int
    shape: RequestShape | None = None
    group: int = 0
    blocks: tuple[int, ...] = ()
    round: int = 0
    given: str | tuple[Mapping[str, Any], ...] | None = None


def _marked(given: str | tuple[Mapping[str, Any], ...], mark: int) -> str | tuple[Mapping[str, Any], ...]:
    """The user's prompt behind a mark of eight hex digits; chat: in the first message that is plain text."""
    word = f"{mark & 0xFFFFFFFF:08x} "
    if isinstance(given, str):
        return word + given
    texts = [i for i, message in enumerate(given) if isinstance(message.get("content"), str)]
    if not texts:
        return given
    first = texts[0]
    return (*given[:first], {**given[first], "content": word + given[first]["content"]}, *given[first + 1 :])


def _text(rng: np.random.Generator, words: int) -> str:
    known = _words()
    return " ".join(known[i] for i in rng.integers(0, len(known), words))


def some_words(seed: int, words: int) -> str:
    """A text of this many common words, another for every seed."""
    return _text(np.random.default_rng(_digest("words", seed, words)), words)


@cache
def _words() -> tuple[str, ...]:
    """Short common English words; most tokenizers hold each as one token."""
    return tuple((files("autotune.workload") / "words.txt").read_text(encoding="utf-8").split())


def _digest(*parts: object) -> int:
    """A seed from any values, equal in every process and Python version."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
