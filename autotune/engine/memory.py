"""Predicts a boot's KV cache, to explain it and to leave out what cannot possibly start.

On a GPU, as vLLM accounts for it (per rank, in bytes):

    budget   = total x gpu-memory-utilization
    KV       = budget - weights - overhead,   or --kv-cache-memory-bytes where that is set
    overhead = activation peak (max-num-batched-tokens, max-num-seqs) + CUDA graphs + workspaces
    tokens   = KV / bytes of one request of max-model-len x max-model-len

The shape of the model gives a first guess; every boot, good or failed, replaces guesses by what vLLM
printed: weights, overhead and bytes per token. What was learned belongs to one model and one vLLM version
and is dropped when either changes, because the same bytes hold other numbers of tokens then.

Two answers, never mixed: ``feasible`` is the best guess and explains; ``surely_impossible`` compares a lower
bound of the need with an upper bound of the supply, keeps a margin on top, and gives up (False) as soon as
a flag is in play whose memory it does not know. Only the second may keep a configuration from being tried.
"""

from dataclasses import dataclass, replace
from typing import Literal

from packaging.version import InvalidVersion, Version

from autotune.engine.failures import Failure
from autotune.engine.logs import GIB, BootFacts
from autotune.engine.margins import MarginBytes
from autotune.engine.memory_flags import MemoryFlags
from autotune.engine.model_shape import ModelShape
from autotune.space.config import LaunchConfig

Device = Literal["cuda", "cpu"]

# Cuts from both bounds before anything is called impossible, as a fraction of the device (or of a set KV size).
_SURE_MARGIN = 0.02
# Tensors of a checkpoint that vLLM may leave out (draft heads, vision towers).
_SURELY_LOADED = 0.85
_WORKSPACE_BYTES = 3 * GIB // 10
# On the CPU backend everything that the worker process holds besides weights counts: mostly imported code.
_CPU_PROCESS_BYTES = 6 * GIB // 10


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPrediction:
    """What a configuration would get. Sizes are per rank; None where the model's shape is not known.

    ``feasible`` is the best guess (None: no basis for one), ``margin_bytes`` the KV memory left after one
    request of full length (negative: missing). ``surely_impossible`` may prune; ``why`` explains either.
    """

    kv_tokens: int | None
    kv_bytes: int | None
    feasible: bool | None
    surely_impossible: bool
    why: str
    margin_bytes: int | None
    weights_bytes: int | None
    overhead_bytes: int | None
    calibrated: bool


@dataclass(frozen=True, slots=True)
class _Boot:
    """What one boot told: the memory that was left for the KV cache, and what a request takes of it."""

    flags: MemoryFlags
    total_bytes: int
    kv_bytes: int
    weights_bytes: int | None
    overhead_bytes: int | None
    request_bytes: float | None
    request_length: int | None


@dataclass(frozen=True, slots=True)
class _Failed:
    """A configuration that ran out of memory, and the class of that failure."""

    flags: MemoryFlags
    name: str


@dataclass(frozen=True, slots=True)
class MemoryModel:
    """Memory of one model under one vLLM version. Immutable: what it learns comes back as a new model.

    ``shape`` may be None (a hub model that is not here yet): then only what was measured is used.
    """

    model: str
    vllm_version: str
    shape: ModelShape | None
    boots: tuple[_Boot, ...] = ()
    failures: tuple[_Failed, ...] = ()

    def for_version(self, vllm_version: str) -> "MemoryModel":
        """This model for another vLLM: nothing that was learned holds there."""
        return self if vllm_version == self.vllm_version else MemoryModel(self.model, vllm_version, self.shape)

    def calibrated(self, facts: BootFacts, config: LaunchConfig, *, total_bytes: int) -> "MemoryModel":
        """With what a good boot of ``config`` printed; a failure that it refutes is forgotten."""
        flags = MemoryFlags.of(config)
        failures = tuple(failed for failed in self.failures if not _is_at_least_as_hungry(flags, failed))
        model = replace(self, failures=failures)
        if facts.kv_bytes is None:
            return model
        length = flags.max_model_len or facts.max_model_len
        per_token = facts.kv_bytes / facts.kv_tokens if facts.kv_tokens else None
        boot = _Boot(
            flags,
            total_bytes,
            facts.kv_bytes,
            facts.weights_bytes,
            self._overhead(flags, total_bytes, facts.kv_bytes, facts.weights_bytes),
            per_token * length if per_token and length else None,
            length,
        )
        return replace(model, boots=(*model.boots, boot))

    def after_failure(self, failure: Failure, config: LaunchConfig, *, total_bytes: int) -> "MemoryModel":
        """With what a failed boot of ``config`` told: its margin, or that it ran out of memory."""
        flags = MemoryFlags.of(config)
        margin, name = failure.margin, failure.cls.name
        if name in ("kv_cache_too_small", "kv_cache_none") and isinstance(margin, MarginBytes):
            length = flags.max_model_len if name == "kv_cache_too_small" else None
            overhead = self._overhead(flags, total_bytes, margin.available, None)
            boot = _Boot(
                flags, total_bytes, margin.available, None, overhead, margin.needed if length else None, length
            )
            return replace(self, boots=(*self.boots, boot))
        if failure.teaches and name in _HUNGRIER_FAILS_TOO:
            return replace(self, failures=(*self.failures, _Failed(flags, name)))
        return self

    def predict(self, config: LaunchConfig, *, total_bytes: int, device: Device = "cuda") -> MemoryPrediction:
        """What ``config`` would get on a device of ``total_bytes`` (the host's memory for ``cpu``)."""
        flags = MemoryFlags.of(config)
        weights, overhead = self._weights(flags), self._overhead_guess(flags, total_bytes, device)
        kv_bytes = self._kv_bytes(flags, total_bytes, weights, overhead)
        need = self._request_bytes(flags)
        length = self._length(flags)
        impossible = self._impossible(flags, total_bytes)
        tokens = int(kv_bytes / need * length) if kv_bytes is not None and kv_bytes > 0 and need and length else None
        margin = kv_bytes - round(need) if kv_bytes is not None and need else None
        return MemoryPrediction(
            kv_tokens=tokens,
            kv_bytes=kv_bytes,
            feasible=False if impossible else None if margin is None else margin >= 0,
            surely_impossible=impossible is not None,
            why=impossible or _explain(kv_bytes, need, length),
            margin_bytes=margin,
            weights_bytes=weights,
            overhead_bytes=overhead,
            calibrated=self._nearest(flags) is not None,
        )

    def _length(self, flags: MemoryFlags) -> int | None:
        if flags.max_model_len:
            return flags.max_model_len
        known = next((boot.request_length for boot in reversed(self.boots) if boot.flags.max_model_len is None), None)
        return known or (self.shape.max_length if self.shape else None)

    def _weights(self, flags: MemoryFlags) -> int | None:
        for boot in reversed(self.boots):
            if boot.weights_bytes is not None and boot.flags.weights_key == flags.weights_key:
                return boot.weights_bytes
        if self.shape is None or (shrink := flags.online_quantization) is None:
            return None
        loaded = self.shape.weights_bytes - round(self.shape.linear_bytes * (1 - shrink))
        return loaded // flags.ranks

    def _overhead(self, flags: MemoryFlags, total: int, kv_bytes: int, weights: int | None) -> int | None:
        """Everything but weights and KV cache, from what was left in the budget."""
        weights = weights if weights is not None else self._weights(flags)
        if flags.kv_limit_bytes is not None or weights is None:
            return None
        return round(self._budget(flags, total)) - weights - kv_bytes

    def _overhead_guess(self, flags: MemoryFlags, total: int, device: Device) -> int | None:
        if device == "cpu":
            return _CPU_PROCESS_BYTES
        activation = self._activation(flags, total)
        if (boot := self._nearest(flags)) and boot.overhead_bytes is not None:
            return max(0, boot.overhead_bytes + (activation or 0) - (self._activation(boot.flags, total) or 0))
        if activation is None or self.shape is None:
            return None
        graphs = 0 if flags.eager else min(2 * GIB, max(GIB // 5, self.shape.weights_bytes // flags.ranks // 50))
        return activation + graphs + _WORKSPACE_BYTES

    def _activation(self, flags: MemoryFlags, total: int) -> int | None:
        """Peak of one step: the widest feed-forward layer over all tokens, or the sampler's logits."""
        if self.shape is None:
            return None
        tokens, sequences = flags.batched_tokens(total), flags.sequences(total)
        width = 3 * self.shape.active_intermediate // flags.tensor_parallel + 4 * self.shape.hidden
        logits = sequences * self.shape.vocab * 10  # half precision, float32 and the sampler's copy
        return max(tokens * width * self.shape.dtype_bytes, logits)

    def _nearest(self, flags: MemoryFlags) -> _Boot | None:
        """The latest boot of the same engine, whatever its budget, batch limits, length and KV type."""
        return next((boot for boot in reversed(self.boots) if boot.flags.engine_key == flags.engine_key), None)

    def _budget(self, flags: MemoryFlags, total: int) -> float:
        return total * (flags.utilization or default_utilization(self.vllm_version))

    def _kv_bytes(self, flags: MemoryFlags, total: int, weights: int | None, overhead: int | None) -> int | None:
        if flags.kv_limit_bytes is not None:
            return flags.kv_limit_bytes
        if weights is not None and overhead is not None:
            return round(self._budget(flags, total)) - weights - overhead
        same = next(
            (boot for boot in reversed(self.boots) if boot.flags.budget_free_key == flags.budget_free_key), None
        )
        return same.kv_bytes + round(self._budget(flags, total) - self._budget(same.flags, total)) if same else None

    def _request_bytes(self, flags: MemoryFlags) -> float | None:
        """KV bytes of one request of full length, as measured or else from the shape."""
        length = self._length(flags)
        if not length:
            return None
        for boot in reversed(self.boots):
            same_kind = boot.flags.kv_key == flags.kv_key
            if same_kind and boot.request_bytes and boot.request_length:
                return boot.request_bytes * self._growth(flags, boot.request_length, length)
        if self.shape is None or self.shape.state_layers:
            return None
        return request_bytes(self.shape, flags, length)

    def _growth(self, flags: MemoryFlags, measured: int, length: int) -> float:
        """How much more a request of ``length`` takes than one of the ``measured`` length."""
        if self.shape is None or self.shape.state_layers:
            return length / measured
        there, here = request_bytes(self.shape, flags, measured), request_bytes(self.shape, flags, length)
        return here / there if there and here else length / measured

    def _impossible(self, flags: MemoryFlags, total: int) -> str | None:
        """Why ``flags`` cannot start on any account, or None."""
        if flags.has_unknown_memory:
            return None
        for failed in self.failures:
            if _is_at_least_as_hungry(flags, failed):
                return f"a configuration that needs no more memory than this one failed with {failed.name}"
        weights = self._least_weights(flags)
        supply = float(flags.kv_limit_bytes or 0) or self._budget(flags, total) - weights
        if flags.kv_limit_bytes and flags.kv_limit_bytes + weights > total * (1 + _SURE_MARGIN):
            return f"KV cache and weights need {_gib(flags.kv_limit_bytes + weights)}, the device has {_gib(total)}"
        need = self._least_request_bytes(flags)
        margin = _SURE_MARGIN * (flags.kv_limit_bytes or total)
        if need <= supply + margin:
            return None
        what = f"one request of {flags.max_model_len:,} tokens" if need and flags.max_model_len else "the weights"
        return f"{what} needs at least {_gib(need)} of KV cache, and at most {_gib(supply)} can be left for it"

    def _least_weights(self, flags: MemoryFlags) -> float:
        measured = [
            boot.weights_bytes
            for boot in self.boots
            if boot.weights_bytes is not None and boot.flags.weights_key == flags.weights_key
        ]
        if measured:
            return min(measured) * (1 - _SURE_MARGIN)
        if self.shape is None or not self.shape.weights_exact:
            return 0.0
        shrink = 1.0 if flags.quantization is None else 0.25
        loaded = self.shape.weights_bytes - self.shape.linear_bytes * (1 - shrink)
        return loaded * _SURELY_LOADED / flags.ranks

    def _least_request_bytes(self, flags: MemoryFlags) -> float:
        """At least so much KV memory takes one request of the length that was asked for; 0 where unknown."""
        if self.shape is None or flags.max_model_len is None:
            return 0.0
        return least_request_bytes(self.shape, flags, flags.max_model_len)


def request_bytes(shape: ModelShape, flags: MemoryFlags, length: int) -> float | None:
    """KV bytes of a request of ``length`` tokens on one rank; None for a KV type of unknown size."""
    size = flags.kv_element_bytes(shape.kv_dtype_bytes)
    if size is None:
        return None
    layer = 2 * max(1, shape.kv_heads // flags.tensor_parallel) * shape.head_size * size
    # Asynchronous scheduling keeps two steps in flight.
    held = min(length, shape.window + 2 * (flags.max_num_batched_tokens or 2048))
    total = shape.full_layers * layer * length + shape.sliding_layers * layer * held
    return (total + shape.latent_layers * shape.latent_size * size * length) / flags.pipeline_parallel


def least_request_bytes(shape: ModelShape, flags: MemoryFlags, length: int) -> float:
    """A lower bound of ``request_bytes``: no block rounding, no padding, the smallest size the KV type can have."""
    size = flags.kv_element_bytes(shape.kv_dtype_bytes) or 0.5
    layer = 2 * max(1, shape.kv_heads // flags.tensor_parallel) * shape.head_size * size
    total = layer * (shape.full_layers * length + shape.sliding_layers * min(length, shape.window))
    return (total + shape.latent_layers * shape.latent_size * size * length) / flags.pipeline_parallel


def default_utilization(vllm_version: str) -> float:
    """vLLM's own ``--gpu-memory-utilization``: 0.92 since 0.21, 0.9 before."""
    try:
        return 0.92 if Version(vllm_version) >= Version("0.21") else 0.9
    except InvalidVersion:
        return 0.92


# Out of memory while booting: whoever takes at least as much everywhere fails as well. Serving is left out: it
# depends on the load, and so is a start on a device that others were using.
_HUNGRIER_FAILS_TOO = frozenset(
    {"oom_weights", "oom_activation", "oom_graph", "oom_sampler", "oom_kv_cache", "oom_warmup"}
)


def _is_at_least_as_hungry(flags: MemoryFlags, failed: _Failed) -> bool:
    if failed.name == "oom_weights":
        return flags.weights_key == failed.flags.weights_key
    if flags.hunger_key != failed.flags.hunger_key:
        return False
    pairs: list[tuple[float | None, float | None]] = [
        (flags.max_num_batched_tokens, failed.flags.max_num_batched_tokens),
        (flags.max_num_seqs, failed.flags.max_num_seqs),
    ]
    if failed.name != "oom_activation":
        pairs += [(flags.utilization, failed.flags.utilization), (flags.kv_limit_bytes, failed.flags.kv_limit_bytes)]
    return all(here == there or (here is not None and there is not None and here > there) for here, there in pairs)


def _explain(kv_bytes: int | None, need: float | None, length: int | None) -> str:
    if kv_bytes is None:
        return "too little is known about the model to predict its memory"
    if need is None or length is None:
        return f"about {_gib(kv_bytes)} are left for the KV cache"
    verb = "holds" if kv_bytes >= need else "cannot hold"
    return f"a KV cache of about {_gib(kv_bytes)} {verb} one request of {length:,} tokens ({_gib(need)})"


def _gib(size: float) -> str:
    return f"{size / GIB:.2f} GiB" if abs(size) >= GIB / 10 else f"{size / (1 << 20):.1f} MiB"
