"""By how much a configuration missed, read from vLLM's own words.

Sizes are printed with two decimals of a GiB. Where that is too coarse (small KV caches print as 0.0), the
token counts of the same message are exact, so they are taken instead.
"""

import re
from dataclasses import dataclass

_UNITS = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
# Below this a size with two decimals of a GiB is off by more than 5 %.
_COARSE_GIB = 0.1


@dataclass(frozen=True, slots=True)
class Margin:
    """What a configuration needed and what there was."""

    needed: int
    available: int

    @property
    def shortfall(self) -> int:
        """How much was missing (> 0), or to spare (< 0)."""
        return self.needed - self.available


class MarginBytes(Margin):
    """Memory in bytes; ``available`` may be negative."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"needed {self.needed / 2**30:.2f} GiB, available {self.available / 2**30:.2f} GiB"


class MarginTokens(Margin):
    """Tokens that were needed and tokens that there was room for."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"needed {self.needed:,} tokens, room for {self.available:,}"


_SIZE = r"(-?[\d.]+)"
_KV_TOKENS = re.compile(r"max seq len'? \((\d+)\).*?estimated maximum model length is (\d+)", re.DOTALL)
_KV_BYTES = re.compile(rf"{_SIZE} GiB KV cache is needed.*?available KV cache memory \({_SIZE} GiB\)", re.DOTALL)
_KV_OLD = re.compile(r"max seq len \((\d+)\) is larger than the maximum number of tokens.*?\((\d+)\)", re.DOTALL)
_START = re.compile(rf"\({_SIZE}/{_SIZE} GiB\) on startup.*?\([\d.]+, {_SIZE} GiB\)", re.DOTALL)
_HOST_KV = re.compile(rf"\({_SIZE}/{_SIZE} GiB\) on kv cache allocation.*?memory for kv \({_SIZE}(?: GiB|/)", re.DOTALL)
_LENGTH = re.compile(r"max_model_len \((\d+)\).*?derived max_model_len \(\w+=([\d.]+)", re.DOTALL)
_BATCH = re.compile(r"max_num_batched_tokens \((\d+)\).*?(?:max_model_len|max_num_seqs) \((\d+)\)", re.DOTALL)


def memory_bytes(number: str, unit: str) -> int:
    """Bytes of a size such as ("1.19", "GiB")."""
    return round(float(number) * _UNITS[unit[:1].lower()])


def kv_margin(message: str) -> Margin | None:
    """How far the KV cache is from holding one request of full length."""
    sizes, tokens = _KV_BYTES.search(message), _KV_TOKENS.search(message) or _KV_OLD.search(message)
    if sizes and (float(sizes[2]) >= _COARSE_GIB or not tokens):
        return MarginBytes(memory_bytes(sizes[1], "G"), memory_bytes(sizes[2], "G"))
    return MarginTokens(int(tokens[1]), int(tokens[2])) if tokens else None


def startup_margin(message: str) -> MarginBytes | None:
    """What the memory budget asks for and what was free at the start."""
    match = _START.search(message)
    return MarginBytes(memory_bytes(match[3], "G"), memory_bytes(match[1], "G")) if match else None


def host_kv_margin(message: str) -> MarginBytes | None:
    """What the KV cache asks of the host, and what the host has free."""
    match = _HOST_KV.search(message)
    return MarginBytes(memory_bytes(match[3], "G"), memory_bytes(match[1], "G")) if match else None


def host_total_bytes(message: str) -> int | None:
    """The host memory (of one NUMA node) that the message of ``host_kv_margin`` states."""
    match = _HOST_KV.search(message)
    return memory_bytes(match[2], "G") if match else None


def length_margin(message: str) -> MarginTokens | None:
    """The length asked for and the length that the model supports."""
    match = _LENGTH.search(message)
    return MarginTokens(int(match[1]), int(float(match[2]))) if match else None


def batch_margin(message: str) -> MarginTokens | None:
    """The tokens a step must hold (max-model-len or max-num-seqs) and max-num-batched-tokens."""
    match = _BATCH.search(message)
    return MarginTokens(int(match[2]), int(match[1])) if match else None
