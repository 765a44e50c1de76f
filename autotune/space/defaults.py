"""What vLLM uses when a flag is left unset, so that "unset" and its explicit equal are one configuration.

``vllm serve`` takes ``max-num-seqs`` (S) and ``max-num-batched-tokens`` (T) from a table by device:

    device                                      T      S
    >= 160 GiB                              16384   1024
    >= 70 GiB, not an A100                   8192   1024
    any other GPU (A100-80G too)             2048    256
    CPU (times tensor x pipeline size)       2048    128

then, in this order: performance mode "throughput" doubles each that the user left unset; an unset T becomes
min(T, S x max-model-len); an unset S becomes min(S, T). Read in vLLM 0.24, 0.32 and 0.33 (``EngineArgs``).
The first row is absent in 0.24; which version between 0.24 and 0.32 brought it was not looked up, so there
the default of such a device is unknown (None).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from packaging.version import InvalidVersion, Version

from autotune.space.config import FlagValue, LaunchConfig
from autotune.space.facts import GIB, DeviceFacts, VllmFacts
from autotune.space.rules import same_value

SEQS, TOKENS = "max-num-seqs", "max-num-batched-tokens"

_READ_FROM, _READ_TO = Version("0.24"), Version("0.34")
_LARGEST_ROW_SURE, _LARGEST_ROW_ABSENT = Version("0.32"), Version("0.25")
_GB10_SMALL_SINCE = Version("0.33")
# The same in 0.24, 0.32 and 0.33. Only flags whose default does not depend on model or device.
_STATED: Mapping[str, FlagValue] = {
    "api-server-count": 1,
    "enforce-eager": False,
    "gpu-memory-utilization": 0.92,
    "kv-cache-dtype": "auto",
    "optimization-level": 2,
    "performance-mode": "balanced",
    "stream-interval": 1,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """One vLLM's defaults on one device. ``seqs`` and ``tokens`` are the table's row, None where unknown.

    ``stated`` holds defaults that do not depend on the device. ``per_worker``: the row is per worker (CPU).
    """

    seqs: int | None = None
    tokens: int | None = None
    max_model_len: int | None = None
    stated: Mapping[str, FlagValue] = field(default_factory=dict)
    per_worker: bool = False

    def batch(self, config: LaunchConfig) -> tuple[FlagValue | None, FlagValue | None]:
        """The (max-num-seqs, max-num-batched-tokens) that the engine will use; None where unknown."""
        asked_seqs, asked_tokens = config.get(SEQS), config.get(TOKENS)
        factor = 2 if config.get("performance-mode") == "throughput" else 1
        if self.per_worker:
            factor *= _size(config, "tensor-parallel-size") * _size(config, "pipeline-parallel-size")
        seqs = asked_seqs if asked_seqs is not None else _times(self.seqs, factor)
        tokens = asked_tokens if asked_tokens is not None else _times(self.tokens, factor)
        length = config.get("max-model-len") or self.max_model_len
        if asked_tokens is None and isinstance(seqs, int) and isinstance(length, int):
            tokens = None if tokens is None else min(int(tokens), seqs * length)
        if asked_seqs is None and isinstance(seqs, int) and isinstance(tokens, int):
            seqs = min(seqs, tokens)
        return seqs, tokens

    def effective(self, config: LaunchConfig) -> LaunchConfig:
        """The one spelling of all configurations that launch the same engine.

        Batch limits are written out, flags that equal their stated default are left out. Two configurations
        are duplicates exactly when this gives equal values (as far as the defaults are known).
        """
        seqs, tokens = self.batch(config)
        flags = {
            name: value
            for name, value in config.flags
            if name not in self.stated or not same_value(value, self.stated[name])
        }
        resolved = {SEQS: seqs, TOKENS: tokens}
        return LaunchConfig.of(
            {**flags, **{name: value for name, value in resolved.items() if value is not None}},
            dict(config.env),
        )

    def by_flag(self) -> dict[str, FlagValue]:
        """Every known default by flag name, as it stands when nothing else is set."""
        seqs, tokens = self.batch(LaunchConfig())
        batch = {SEQS: seqs, TOKENS: tokens}
        return {**self.stated, **{name: value for name, value in batch.items() if value is not None}}


def find_defaults(device: DeviceFacts, vllm: VllmFacts, max_model_len: int | None = None) -> Defaults:
    """This vLLM's defaults on this device; outside the versions that were read, only what vLLM states."""
    version = _version(vllm.version)
    if version is None or not _READ_FROM <= version < _READ_TO:
        return Defaults(max_model_len=max_model_len, stated=dict(vllm.defaults))
    seqs, tokens = _row(device, version)
    stated = {**_STATED, **{k: v for k, v in vllm.defaults.items() if k not in (SEQS, TOKENS)}}
    return Defaults(
        seqs=seqs,
        tokens=tokens,
        max_model_len=max_model_len,
        stated=stated,
        per_worker=device.kind == "cpu",
    )


def _row(device: DeviceFacts, version: Version) -> tuple[int | None, int | None]:
    if device.kind == "cpu":
        return 128, 2048
    if device.compute_capability == (12, 1) and version >= _GB10_SMALL_SINCE:
        return 256, 2048
    if device.total_bytes >= 160 * GIB and version >= _LARGEST_ROW_ABSENT:
        return (1024, 16384) if version >= _LARGEST_ROW_SURE else (1024, None)
    if device.total_bytes >= 70 * GIB and "a100" not in device.name.lower():
        return 1024, 8192
    return 256, 2048


def _version(text: str) -> Version | None:
    try:
        return Version(Version(text).base_version)
    except InvalidVersion:
        return None


def _size(config: LaunchConfig, name: str) -> int:
    value = config.get(name)
    return value if isinstance(value, int) else 1


def _times(value: int | None, factor: int) -> int | None:
    return None if value is None else value * factor
