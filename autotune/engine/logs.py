"""What a vLLM log tells about a boot: its phases, and the numbers that it prints."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class BootPhase(StrEnum):
    """Phases of an engine's life in their order; members compare by position with ``rank``."""

    IMPORTS = "imports"
    CONFIG = "config"
    WEIGHTS = "weights"
    COMPILE = "compile"
    PROFILE = "profile"
    GRAPHS = "graphs"
    SERVER = "server"
    READY = "ready"
    SERVING = "serving"
    STOPPING = "stopping"

    @property
    def rank(self) -> int:
        """Position in the order of a boot, from 0."""
        return list(BootPhase).index(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class BootFacts:
    """What one boot printed; None (or empty) where it printed nothing.

    Memory is in bytes as vLLM rounds it (two decimals of a GiB). ``phases_s`` holds the seconds from the
    first line of each phase to the first line of the next, by the log's own clock (whole seconds).
    ``compile_cached`` is True for a hot compile cache, False for a cold one.
    """

    vllm_version: str | None = None
    model: str | None = None
    phase: BootPhase = BootPhase.IMPORTS
    ready: bool = False
    phases_s: Mapping[BootPhase, float] = field(default_factory=dict)
    non_default_args: Mapping[str, str] = field(default_factory=dict)
    architecture: str | None = None
    max_model_len: int | None = None
    chunked_prefill_tokens: int | None = None
    quantization: str | None = None
    model_runner: str | None = None
    attention_backend: str | None = None
    weights_bytes: int | None = None
    weights_load_s: float | None = None
    compile_s: float | None = None
    compile_cached: bool | None = None
    available_kv_bytes: int | None = None
    kv_tokens: int | None = None
    max_concurrency: float | None = None
    graphs_bytes: int | None = None
    graphs_s: float | None = None
    peak_activation_bytes: int | None = None
    total_device_bytes: int | None = None
    free_at_start_bytes: int | None = None
    suggested_kv_bytes: tuple[int, ...] = ()
    init_engine_s: float | None = None
