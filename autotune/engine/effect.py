"""Whether a flag did what was asked of it, by what the engine shows for it.

vLLM accepts values that it then passes over without a warning: a quantization that quantizes no layer, a backend that
the platform does not have. Such an engine is its neighbour under another name, so its numbers credit a flag with
nothing behind it. What can be seen from outside: the memory of the weights, the bytes of a token in the KV cache, the
count of quantized layers, the backend's line in the log, and the resolved types.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from autotune.engine.types import BootReport
from autotune.space.config import FlagValue

SAME = 0.01
# Their tokens are as wide as those of the model's own type, so that bytes tell nothing.
AS_WIDE = ("auto", "float16", "bfloat16", "half")


@dataclass(frozen=True, slots=True)
class Effect:
    """What one engine shows; None where it does not say."""

    weights_bytes: int | None = None
    kv_bytes_per_token: float | None = None
    quantized_layers: int | None = None
    attention_backend: str | None = None
    dtype: str | None = None

    @classmethod
    def of(cls, report: BootReport) -> "Effect":
        """What a boot showed."""
        facts = report.facts
        tokens, kv_bytes = report.kv_tokens or facts.kv_tokens, report.kv_bytes
        return cls(
            weights_bytes=facts.weights_bytes,
            kv_bytes_per_token=kv_bytes / tokens if kv_bytes and tokens else None,
            quantized_layers=facts.quantized_layers,
            attention_backend=facts.attention_backend,
            dtype=facts.dtype,
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def without_effect(asked: Mapping[str, FlagValue], seen: Effect, plain: Effect) -> dict[str, str]:
    """The flags that did nothing, each with what shows it; ``plain`` is the engine without them."""
    reasons = {name: _JUDGES[name](str(value), seen, plain) for name, value in asked.items() if name in _JUDGES}
    return {name: reason for name, reason in reasons.items() if reason}


def _quantization(_value: str, seen: Effect, plain: Effect) -> str | None:
    if seen.quantized_layers == 0:
        return "vLLM quantized 0 layers"
    if seen.quantized_layers is None and _same(seen.weights_bytes, plain.weights_bytes):
        return f"the weights take {(seen.weights_bytes or 0) / 2**30:.2f} GiB, as without it"
    return None


def _kv_dtype(value: str, seen: Effect, plain: Effect) -> str | None:
    if value not in AS_WIDE and _same(seen.kv_bytes_per_token, plain.kv_bytes_per_token):
        return f"a token takes {seen.kv_bytes_per_token or 0:.0f} bytes of the KV cache, as without it"
    return None


def _backend(value: str, seen: Effect, plain: Effect) -> str | None:
    if seen.attention_backend is None:
        return None
    used, asked = _plain_name(seen.attention_backend), _plain_name(value)
    if used != asked:
        return f"the engine uses {seen.attention_backend}"
    same = plain.attention_backend is not None and _plain_name(plain.attention_backend) == used
    return f"{seen.attention_backend} is what vLLM takes anyway" if same else None


def _dtype(_value: str, seen: Effect, plain: Effect) -> str | None:
    same = seen.dtype is not None and seen.dtype == plain.dtype
    return f"the engine computes in {seen.dtype}, as without it" if same else None


_JUDGES = {
    "quantization": _quantization,
    "kv-cache-dtype": _kv_dtype,
    "attention-backend": _backend,
    "dtype": _dtype,
}


def _same(one: float | None, other: float | None) -> bool:
    return bool(one and other) and abs((one or 0) / (other or 1) - 1) <= SAME


def _plain_name(backend: str) -> str:
    """FLASH_ATTN, FlashAttention and ``FLASH_ATTN_VLLM_V1`` are one backend."""
    name = re.sub(r"[^A-Z0-9]", "", backend.upper())
    return re.sub(r"(VLLMV1|V1)$", "", name).replace("ATTENTION", "ATTN")
