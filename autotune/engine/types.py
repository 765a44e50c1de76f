"""The values that go into a boot and come out of it.

    EngineSpec ──boot()──▶ Engine.report: BootReport ──Engine.stop()──▶ StopReport
        └── or BootFailed(failure), when the engine did not come up

All are frozen and picklable, so that a boot can be asked for from another process.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from autotune.errors import AutotuneError
from autotune.space.config import LaunchConfig

if TYPE_CHECKING:
    from autotune.engine.failures import Failure
    from autotune.engine.install import VllmInstall
    from autotune.engine.logs import BootFacts

BootKind = Literal["plain", "warm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """Everything that one boot needs.

    ``config`` (what is tried) is laid over ``fixed`` (what the person set). ``device`` is a GPU's UUID or
    index for ``CUDA_VISIBLE_DEVICES``; None leaves the variable as it is, which on a CPU host is right.
    ``cache_root`` becomes ``VLLM_CACHE_ROOT`` and must be the same for all boots of a study, else every boot
    compiles anew. ``environ`` is the environment to start from (None: this process's); debug switches are
    taken out of it. ``command`` are the words in front of the model (empty: ``vllm serve`` of ``install``).
    """

    install: "VllmInstall"
    model: str
    config: LaunchConfig
    run_id: str
    log_path: Path
    cache_root: Path
    fixed: LaunchConfig = field(default_factory=LaunchConfig)
    device: str | None = None
    environ: Mapping[str, str] | None = None
    command: tuple[str, ...] = ()

    def launch(self) -> LaunchConfig:
        """Flags and variables that the engine is given, before port and name."""
        return self.fixed.merged(self.config)


@dataclass(frozen=True, slots=True, kw_only=True)
class BootReport:
    """What a boot took and what vLLM said that it really uses; None where it said nothing.

    ``phases_s`` holds the seconds of each phase by its name, in order, by our clock; ``facts`` what the log
    printed. ``cache_config`` is vLLM's resolved cache configuration as it tells it; the whole configuration
    comes from ``Engine.resolved_config``. ``notes`` are remarks for the person, such as why a warm boot was
    not used.
    """

    kind: BootKind
    boot_s: float
    argv: tuple[str, ...]
    log_path: Path
    phases_s: Mapping[str, float]
    facts: "BootFacts"
    kv_tokens: int | None = None
    cache_config: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def attention_backend(self) -> str | None:
        """The attention backend that vLLM chose."""
        return self.facts.attention_backend

    @property
    def kv_bytes(self) -> int | None:
        """Memory of the KV cache."""
        return self.facts.kv_bytes

    @property
    def weights_bytes(self) -> int | None:
        """Memory of the weights on the device."""
        return self.facts.weights_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReport:
    """How an engine ended. ``survivors`` lists processes that could not be ended: normally empty.

    ``exit_code`` is the leader's, negative for a signal; None where it was never seen. ``killed`` says
    whether SIGKILL was needed, ``files_removed`` which of the engine's files (shared memory, sockets) were left
    behind and taken away.
    """

    stop_s: float
    exit_code: int | None
    killed: bool
    survivors: tuple[int, ...] = ()
    files_removed: tuple[str, ...] = ()


class BootFailed(AutotuneError):
    """The engine did not come up; ``failure`` says why and what it teaches. All its processes are gone."""

    def __init__(self, failure: "Failure", stop: StopReport, boot_s: float) -> None:
        super().__init__(str(failure))
        self.failure = failure
        self.stop = stop
        self.boot_s = boot_s
