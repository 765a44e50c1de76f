"""Shapes of the OpenAI interface as vLLM answers it: prompts in, chunks, choices, usage and errors out."""

import time
from dataclasses import dataclass
from typing import Any

from vllm.fake.language import Model, decode, encode
from vllm.fake.settings import Settings


class Refused(Exception):
    """A request that gets an error answer."""

    def __init__(self, status: int, message: str, kind: str = "BadRequestError") -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind


def error_body(message: str, kind: str, code: int) -> dict[str, Any]:
    """The body of an error answer."""
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


@dataclass(frozen=True)
class Ask:
    """One request for text, after all checks."""

    prompt: list[int]
    max_tokens: int
    chat: bool
    stream: bool
    usage: bool
    model: str
    logprobs: int | None
    prompt_logprobs: int | None
    token_ids: bool
    names_as_ids: bool
    details: bool


def parse(body: dict[str, Any], chat: bool, settings: Settings) -> Ask:
    """Check a body as vLLM does. Raises ``Refused``."""
    known = settings.behaviour.served_as or body.get("model") in (None, *settings.served_names)
    if not known:
        raise Refused(404, f"The model `{body.get('model')}` does not exist.", "NotFoundError")
    prompt = _prompt(body, chat, settings)
    room = settings.model_len - len(prompt)
    if room < 1:
        raise Refused(
            400,
            f"This model's maximum context length is {settings.model_len} tokens. However, your request has "
            f"{len(prompt)} input tokens. Please reduce the length of the input messages.",
        )
    wanted = body.get("max_completion_tokens") or body.get("max_tokens") or (room if chat else 16)
    _check_logprobs(body, settings)
    logprobs = body.get("top_logprobs", 0 if body.get("logprobs") else None) if chat else body.get("logprobs")
    return Ask(
        prompt=prompt,
        max_tokens=max(1, min(int(wanted), room)),
        chat=chat,
        stream=bool(body.get("stream")),
        usage=bool((body.get("stream_options") or {}).get("include_usage")),
        model=str(body.get("model") or settings.served_name),
        logprobs=logprobs,
        prompt_logprobs=body.get("prompt_logprobs"),
        token_ids=bool(body.get("return_token_ids")),
        names_as_ids=bool(body.get("return_tokens_as_token_ids")),
        details=bool(settings.flags["enable-prompt-tokens-details"]),
    )


def _check_logprobs(body: dict[str, Any], settings: Settings) -> None:
    most = settings.flags["max-logprobs"]
    for name in ("prompt_logprobs", "logprobs"):
        if not isinstance(body.get(name), bool) and (body.get(name) or 0) > most:
            kind = name.replace("_", " ").replace("logprobs", "sample logprobs" if name == "logprobs" else "logprobs")
            raise Refused(400, f"Requested {kind} of {body[name]}, which is greater than max allowed: {most}")


def _prompt(body: dict[str, Any], chat: bool, settings: Settings) -> list[int]:
    if chat:
        words = " ".join(f"{m.get('role')} {_text(m.get('content'))}" for m in body.get("messages", []))
        return encode(f"{words} assistant", settings.vocab)
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], list | str):
        prompt = prompt[0]
    if isinstance(prompt, str):
        prompt = encode(prompt, settings.vocab)
    if not isinstance(prompt, list) or not prompt or not all(isinstance(t, int) for t in prompt):
        raise Refused(400, "Either prompt or prompt_embeds must be provided and non-empty.")
    for token in prompt:
        if not 0 <= token < settings.vocab:
            raise Refused(400, f"Token id {token} is out of vocabulary")
    return prompt


def _text(content: object) -> str:
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in content)
    return str(content)


def usage(prompt_tokens: int, made: int) -> dict[str, Any]:
    """The usage block without details."""
    return {"prompt_tokens": prompt_tokens, "total_tokens": prompt_tokens + made, "completion_tokens": made}


class Shaper:
    """Builds the chunks or the whole answer of one request."""

    def __init__(self, ask: Ask, request_id: str, model: Model) -> None:
        self.ask = ask
        self.model = model
        kind = "chat.completion" if ask.chat else "text_completion"
        self.base = {
            "id": request_id,
            "object": f"{kind}.chunk" if ask.chat and ask.stream else kind,
            "created": int(time.time()),
            "model": ask.model,
        }
        self.last = ask.prompt[-1]

    def role_chunk(self) -> dict[str, Any]:
        """The first chunk of a chat stream."""
        choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
        return {**self.base, "choices": [choice]}

    def chunk(self, tokens: list[int], reason: str | None, lost: bool = False) -> dict[str, Any]:
        """A chunk with new tokens; a lost one has no text."""
        text = "" if lost else decode(tokens)
        content = {"delta": {"content": text}} if self.ask.chat else {"text": text}
        extra = {"token_ids": tokens} if self.ask.token_ids else {}
        choice = {"index": 0, **content, "logprobs": self._logprobs(tokens), "finish_reason": reason, **extra}
        return {**self.base, "choices": [choice if self.ask.chat else {**choice, "stop_reason": None}]}

    def usage_chunk(self, made: int, cached: int) -> dict[str, Any]:
        """The last chunk, without choices."""
        details = {"prompt_tokens_details": {"cached_tokens": cached}} if cached and self.ask.details else {}
        return {**self.base, "choices": [], "usage": {**usage(len(self.ask.prompt), made), **details}}

    def whole(self, tokens: list[int], reason: str, cached: int) -> dict[str, Any]:
        """The answer in one piece."""
        text = decode(tokens)
        content: dict[str, Any] = (
            {"message": {"role": "assistant", "content": text}} if self.ask.chat else {"text": text}
        )
        choice = {
            "index": 0,
            **content,
            "logprobs": self._logprobs(tokens),
            "finish_reason": reason,
            "stop_reason": None,
        }
        details = {"cached_tokens": cached} if cached and self.ask.details else None
        used = {**usage(len(self.ask.prompt), len(tokens)), "prompt_tokens_details": details}
        prompt = self._prompt_logprobs()
        place: dict[str, Any] = {"prompt_logprobs": prompt}
        choice |= {} if self.ask.chat else place
        top = place if self.ask.chat else {}
        return {**self.base, "choices": [choice], "usage": used, **top}

    def _logprobs(self, tokens: list[int]) -> dict[str, Any] | None:
        count = self.ask.logprobs
        if count is None:
            return None
        chosen, tops = [], []
        for token in tokens:
            chosen.append(self.model.logprob(self.last, token)[0])
            tops.append(self.model.likely(self.last)[:count])
            self.last = token
        if self.ask.chat:
            pairs = zip(tokens, chosen, tops, strict=True)
            return {"content": [{**_entry(t, p), "top_logprobs": [_entry(*x) for x in top]} for t, p, top in pairs]}
        return {
            "tokens": [self._name(t) for t in tokens],
            "token_logprobs": chosen,
            "top_logprobs": [{self._name(t): p for t, p in top} for top in tops],
            "text_offset": list(range(len(tokens))),
        }

    def _name(self, token: int) -> str:
        return f"token_id:{token}" if self.ask.names_as_ids else decode([token])

    def _prompt_logprobs(self) -> list[dict[str, Any] | None] | None:
        count = self.ask.prompt_logprobs
        if count is None:
            return None
        out: list[dict[str, Any] | None] = [None]
        for last, token in zip(self.ask.prompt, self.ask.prompt[1:], strict=False):
            ranked = {t: (p, rank) for rank, (t, p) in enumerate(self.model.reading(last, token), 1)}
            top = {t: pair for t, pair in ranked.items() if pair[1] <= count}
            top.setdefault(token, ranked.get(token) or self.model.logprob(last, token))
            out.append({str(t): {"logprob": p, "rank": r, "decoded_token": decode([t])} for t, (p, r) in top.items()})
        return out


def _entry(token: int, logprob: float) -> dict[str, Any]:
    return {"token": decode([token]), "logprob": logprob, "bytes": None}
