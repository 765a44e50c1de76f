"""The flags that decide about memory, read from a launch configuration with vLLM's own units."""

import json
import re
from dataclasses import dataclass

from autotune.engine.logs import GIB
from autotune.space.config import FlagValue, LaunchConfig

# Flags that move memory in ways that no formula here follows: nothing is ever called impossible with them.
_UNKNOWN_MEMORY = (
    "cpu-offload-gb", "offload-backend", "hf-overrides", "kv-transfer-config", "kv-offloading-size", "config",
    "weight-cache-socket-dir", "enable-expert-parallel", "model-loader-extra-config", "additional-config",
    "decode-context-parallel-size", "prefill-context-parallel-size", "kv-cache-dtype-skip-layers",
    "kv-sharing-fast-prefill", "language-model-only",
)  # fmt: skip
_BUDGET = ("gpu-memory-utilization", "kv-cache-memory-bytes", "kv-cache-memory")
_LIMITS = ("max-num-batched-tokens", "max-num-seqs", "max-model-len")
_KV_KIND = ("kv-cache-dtype", "block-size")
_WEIGHTS = (
    "quantization",
    "tensor-parallel-size",
    "pipeline-parallel-size",
    "dtype",
    "load-format",
    "language-model-only",
)
_KV_BYTES = {
    "fp8": 1.0, "fp8_e4m3": 1.0, "fp8_e5m2": 1.0, "fp8_inc": 1.0, "int8": 1.0,
    "bfloat16": 2.0, "float16": 2.0, "float32": 4.0,
}  # fmt: skip
# What is left of the linear weights when vLLM quantizes a plain checkpoint while loading it.
_ONLINE = {"fp8": 0.5, "fp8_per_tensor": 0.5, "fp8_per_block": 0.5, "experts_int8": 0.5, "bitsandbytes": 0.28}
_UNITS = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_HUMAN = re.compile(r"(\d+(?:\.\d+)?)([kmgtKMGT]?)i?[bB]?$")

Items = tuple[tuple[str, FlagValue], ...]


@dataclass(frozen=True, slots=True)
class MemoryFlags:
    """A configuration as the memory model sees it. None means that the flag is left at vLLM's default."""

    flags: Items
    utilization: float | None
    kv_limit_bytes: int | None
    max_model_len: int | None
    max_num_batched_tokens: int | None
    max_num_seqs: int | None
    tensor_parallel: int
    pipeline_parallel: int
    quantization: str | None
    kv_dtype: str
    eager: bool

    @classmethod
    def of(cls, config: LaunchConfig) -> "MemoryFlags":
        """Read the flags (and, for CPU engines, the environment) of a configuration."""
        get = config.get
        quantization = get("quantization")
        return cls(
            config.flags,
            _float(get("gpu-memory-utilization")),
            _size(get("kv-cache-memory-bytes")) or _size(get("kv-cache-memory")) or _cpu_space(config),
            _size(get("max-model-len")),
            _size(get("max-num-batched-tokens")),
            _size(get("max-num-seqs")),
            _size(get("tensor-parallel-size")) or 1,
            _size(get("pipeline-parallel-size")) or 1,
            None if quantization in (None, "none", "auto") else str(quantization),
            str(get("kv-cache-dtype") or "auto"),
            get("enforce-eager") is True
            or get("optimization-level") in (0, "0")
            or _no_graphs(get("compilation-config")),
        )

    @property
    def ranks(self) -> int:
        """Among how many GPUs the weights are divided."""
        return self.tensor_parallel * self.pipeline_parallel

    @property
    def has_unknown_memory(self) -> bool:
        """Whether a flag is set whose memory cannot be told."""
        return any(name in _UNKNOWN_MEMORY for name, _ in self.flags)

    @property
    def online_quantization(self) -> float | None:
        """What is left of the linear weights; 1 without the flag, None for a method of unknown size."""
        return 1.0 if self.quantization is None else _ONLINE.get(self.quantization)

    @property
    def weights_key(self) -> Items:
        """Equal for configurations whose weights take the same memory."""
        return self._only(_WEIGHTS)

    @property
    def kv_key(self) -> Items:
        """Equal for configurations whose requests take the same KV memory per token."""
        return self._only((*_KV_KIND, "tensor-parallel-size", "pipeline-parallel-size", "dtype"))

    @property
    def engine_key(self) -> Items:
        """Equal for configurations that differ in budget, limits and KV kind at most."""
        return self._without((*_BUDGET, *_LIMITS, *_KV_KIND))

    @property
    def budget_free_key(self) -> Items:
        """Equal for configurations that differ in the budget at most."""
        return self._without(_BUDGET)

    @property
    def hunger_key(self) -> Items:
        """Equal for configurations whose hunger can be compared by budget, tokens and sequences."""
        return self._without((*_BUDGET, "max-num-batched-tokens", "max-num-seqs"))

    def kv_element_bytes(self, auto_bytes: int) -> float | None:
        """Bytes of one element of the KV cache; None for a type of unknown layout."""
        return float(auto_bytes) if self.kv_dtype == "auto" else _KV_BYTES.get(self.kv_dtype)

    def batched_tokens(self, total_bytes: int) -> int:
        """max-num-batched-tokens, or what ``vllm serve`` takes on a device of that size."""
        default = 16384 if total_bytes >= 160 * GIB else 8192 if total_bytes >= 70 * GIB else 2048
        return self.max_num_batched_tokens or default

    def sequences(self, total_bytes: int) -> int:
        """max-num-seqs, or what ``vllm serve`` takes on a device of that size."""
        return self.max_num_seqs or (1024 if total_bytes >= 70 * GIB else 256)

    def _only(self, names: tuple[str, ...]) -> Items:
        return tuple(item for item in self.flags if item[0] in names)

    def _without(self, names: tuple[str, ...]) -> Items:
        return tuple(item for item in self.flags if item[0] not in names)


def _float(value: FlagValue | None) -> float | None:
    return None if value is None or isinstance(value, str) else float(value)


def _size(value: FlagValue | None) -> int | None:
    """A count or size as vLLM reads it: 8k is 8000, 8K is 8192. None where it is no positive number."""
    match = _HUMAN.match(str(value)) if value is not None and not isinstance(value, bool) else None
    if match is None:
        return None
    return int(float(match[1]) * _UNITS.get(match[2], 1)) or None


def _cpu_space(config: LaunchConfig) -> int | None:
    space = _size(dict(config.env).get("VLLM_CPU_KVCACHE_SPACE"))
    return space * GIB if space else None


def _no_graphs(compilation: FlagValue | None) -> bool:
    if not isinstance(compilation, str):
        return False
    try:
        options = json.loads(compilation)
    except ValueError:
        return False
    return isinstance(options, dict) and str(options.get("cudagraph_mode")).upper() == "NONE"
