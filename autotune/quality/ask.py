"""Asks a vLLM server how likely it finds texts: token ids in, log probabilities out.

    prompts = tokenize(server, texts)      once for each model: every engine gets the same token ids
    reading = read(server, prompts)        one pass

Passages are scored with ``prompt_logprobs``, which computes every position anew (vLLM passes over the prefix cache for
such requests). They go out one at a time: the logits of a passage lie in memory beside the KV cache. Openings are
decoded greedily with ``logprobs``, together, so that the kernels of the decoding path are asked too.
"""

import http.client
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import orjson

from autotune.errors import AutotuneError
from autotune.quality.reading import NOTHING, TOP, Prompts, Reading, Scores
from autotune.quality.texts import Texts

PASSAGE_TOKENS = 120
DECODED_TOKENS = 12
FEWEST_POSITIONS = 200
# The first request with prompt_logprobs has been seen to take more than ten seconds.
ANSWER_S = 120.0
READ_S = 300.0
LOOK_EVERY_S = 0.2

Entry = tuple[int, float]


class QualityUnavailable(AutotuneError):
    """Quality cannot be measured here; the text says why. Nothing may be concluded from it."""


@dataclass(frozen=True, slots=True)
class Server:
    """Where to ask: the base URL without a path, and the served model's name."""

    base_url: str
    model: str


def go_on() -> None:
    """Nobody asks to stop."""


def tokenize(server: Server, texts: Texts) -> Prompts:
    """The texts as token ids, cut to what the server's context holds. Raises ``QualityUnavailable``."""
    passages, limit = [], math.inf
    for text in texts.passages:
        tokens, limit = _tokenize(server, text)
        passages.append(tokens[: int(min(PASSAGE_TOKENS, limit - 1))])
    room = int(min(limit, 1 << 20)) - DECODED_TOKENS
    openings = [_tokenize(server, text)[0] for text in texts.openings]
    # A needle that does not fit loses its middle: the code word stands in front, the question at the end.
    cut = [t if len(t) <= room else t[: room // 2] + t[-(room - room // 2) :] for t in openings]
    return Prompts(tuple(map(tuple, passages)), tuple(map(tuple, cut)))


def read(
    server: Server, prompts: Prompts, keep_waiting: Callable[[], None] = go_on, limit_s: float = READ_S
) -> Reading:
    """One pass over the prompts; ``keep_waiting`` is called five times a second and may raise.

    Raises ``QualityUnavailable`` where the server gives no log probabilities, or too few, or not in ``limit_s``.
    """
    started = time.monotonic()
    pool = ThreadPoolExecutor(max_workers=max(1, len(prompts.openings)))

    def answer(asked: Future[list[_Row]]) -> list[_Row]:
        keep_waiting()
        while not wait([asked], timeout=LOOK_EVERY_S).done:
            keep_waiting()
            if time.monotonic() - started > limit_s:
                raise QualityUnavailable(f"the server did not read all texts within {limit_s:.0f} s")
        return asked.result()

    try:
        passages = [answer(pool.submit(_passage, server, tokens)) for tokens in prompts.passages]
        decoding = [pool.submit(_opening, server, tokens) for tokens in prompts.openings]
        openings = [answer(asked) for asked in decoding]
    finally:
        # Who gives up ends the engine next, and with it what still waits for an answer.
        pool.shutdown(wait=False, cancel_futures=True)
    reading = Reading(prompts, _scores(passages), _scores(openings), time.monotonic() - started)
    if len(reading.passages) < FEWEST_POSITIONS:
        raise QualityUnavailable(
            f"the texts give {len(reading.passages)} positions, and {FEWEST_POSITIONS} are needed to judge anything"
        )
    return reading


@dataclass(frozen=True, slots=True)
class _Row:
    """One position."""

    token: int
    own: float
    top: tuple[Entry, ...]


def _passage(server: Server, tokens: Sequence[int]) -> list[_Row]:
    body = {"prompt": list(tokens), "max_tokens": 1, "prompt_logprobs": TOP}
    choice = _complete(server, body)
    entries = choice.get("prompt_logprobs")
    if not isinstance(entries, list) or len(entries) != len(tokens):
        raise QualityUnavailable("the server answers without prompt_logprobs")
    return [_prompt_row(token, entry) for token, entry in zip(tokens[1:], entries[1:], strict=True)]


def _prompt_row(token: int, entry: Any) -> _Row:
    try:
        ranked = {int(i): (_number(e["logprob"]), int(e["rank"])) for i, e in entry.items()}
        top = sorted((i, value) for i, (value, rank) in ranked.items() if rank <= TOP)
        return _Row(token, ranked[token][0], _best(top))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise QualityUnavailable(f"prompt_logprobs of an unknown shape: {error!r}") from None


def _opening(server: Server, tokens: Sequence[int]) -> list[_Row]:
    body = {
        "prompt": list(tokens),
        "max_tokens": DECODED_TOKENS,
        "logprobs": TOP,
        "return_tokens_as_token_ids": True,
        "ignore_eos": True,
    }
    given = _complete(server, body).get("logprobs") or {}
    try:
        return [
            _Row(_id(token), _number(own), _best((_id(name), _number(value)) for name, value in (top or {}).items()))
            for token, own, top in zip(given["tokens"], given["token_logprobs"], given["top_logprobs"], strict=True)
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise QualityUnavailable(f"logprobs of an unknown shape: {error!r}") from None


def _best(entries: Any) -> tuple[Entry, ...]:
    return tuple(sorted(entries, key=lambda entry: (-entry[1], entry[0]))[:TOP])


def _id(name: str) -> int:
    return int(name.removeprefix("token_id:"))


def _number(value: Any) -> float:
    """A log probability; what is no number (a broken kernel's NaN) counts as impossible."""
    number = float(value)
    return max(number, NOTHING) if math.isfinite(number) else NOTHING


def _scores(prompts: Sequence[Sequence[_Row]]) -> Scores:
    rows = [(group, row) for group, rows in enumerate(prompts) for row in rows]
    top = np.full((len(rows), TOP), -1, np.int32)
    logprobs = np.full((len(rows), TOP), NOTHING, np.float32)
    for place, (_, row) in enumerate(rows):
        top[place, : len(row.top)] = [token for token, _ in row.top]
        logprobs[place, : len(row.top)] = [value for _, value in row.top]
    return Scores(
        tokens=np.array([row.token for _, row in rows], np.int32),
        own=np.array([row.own for _, row in rows], np.float32),
        top=top,
        logprobs=logprobs,
        group=np.array([group for group, _ in rows], np.int32),
    )


def _tokenize(server: Server, text: str) -> tuple[list[int], float]:
    """Token ids and the longest context, infinite where the server does not tell."""
    answer = _post(server, "/tokenize", {"model": server.model, "prompt": text})
    tokens = answer.get("tokens")
    if not isinstance(tokens, list) or not tokens:
        raise QualityUnavailable("the server's /tokenize gives no tokens")
    return tokens, float(answer.get("max_model_len") or math.inf)


def _complete(server: Server, body: Mapping[str, Any]) -> Mapping[str, Any]:
    answer = _post(server, "/v1/completions", {"model": server.model, "temperature": 0.0, "seed": 0, **body})
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices:
        raise QualityUnavailable("a completion came back without a choice")
    choice: Mapping[str, Any] = choices[0]
    return choice


def _post(server: Server, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
    """One request without proxies. Raises ``QualityUnavailable``."""
    where = urlsplit(server.base_url)
    connection = http.client.HTTPConnection(where.hostname or "127.0.0.1", where.port, timeout=ANSWER_S)
    try:
        connection.request("POST", path, orjson.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        data = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise QualityUnavailable(f"{path} did not answer: {error!r}") from error
    finally:
        connection.close()
    if response.status != 200:
        raise QualityUnavailable(f"{path} answered HTTP {response.status}: {_words(data)}")
    try:
        # json reads NaN, which a broken kernel sends and orjson refuses.
        answer = json.loads(data)
    except ValueError as error:
        raise QualityUnavailable(f"{path} answered what is no JSON: {error}") from None
    if not isinstance(answer, dict):
        raise QualityUnavailable(f"{path} answered no JSON object")
    return answer


def _words(data: bytes) -> str:
    return " ".join(data[:300].decode(errors="replace").split())
