"""What a machine is, as frozen values: GPUs, CPU, memory, and the device that is to be tuned.

Everything that a driver may refuse to tell is ``None`` there, never a guess. Memory is in bytes, power in
watts, clocks in MHz. ``Host.fingerprint`` tells whether two studies ran on machines that tune alike: it
covers GPU model, memory and driver, CPU model, cores and RAM, and leaves out what differs between equal
machines (names, UUIDs, free memory, kernel builds).
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

GIB = 1024**3


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that holds memory on a GPU. Inside a container name and memory are often hidden."""

    pid: int
    name: str | None = None
    used_bytes: int | None = None
    kind: Literal["compute", "graphics"] = "compute"


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as NVML shows it; ``total_bytes`` is what CUDA calls its memory, without the driver's own share.

    ``problem`` says why the GPU cannot be used, where it cannot.
    """

    index: int
    uuid: str
    name: str
    total_bytes: int
    free_bytes: int
    compute_capability: tuple[int, int] | None = None
    power_limit_w: float | None = None
    mig: bool = False
    unified_memory: bool = False
    pcie_generation: int | None = None
    pcie_width: int | None = None
    sm_clock_mhz: int | None = None
    max_sm_clock_mhz: int | None = None
    processes: tuple[GpuProcess, ...] = ()
    problem: str | None = None

    @property
    def compute_processes(self) -> tuple[GpuProcess, ...]:
        """Processes that compute on the GPU; a desktop's graphics do not count."""
        return tuple(process for process in self.processes if process.kind == "compute")


@dataclass(frozen=True, slots=True)
class Cpu:
    """The processor. Cores are those that this process may use (affinity and cgroup quota count)."""

    model: str
    physical_cores: int
    logical_cores: int
    usable_cores: float
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Host:
    """One machine. ``gpu_problem`` is one sentence on why there is no usable GPU, where there is none."""

    cpu: Cpu
    ram_total_bytes: int
    ram_available_bytes: int
    gpus: tuple[Gpu, ...] = ()
    driver_version: str | None = None
    cuda_version: str | None = None
    gpu_problem: str | None = None
    os: str = ""
    kernel: str = ""
    python: str = ""

    def fingerprint(self) -> str:
        """Twelve hex digits, equal on machines where the same configuration should be best."""
        facts = {
            "gpus": sorted((gpu.name, round(gpu.total_bytes / GIB), gpu.mig) for gpu in self.gpus),
            "driver": self.driver_version,
            "cpu": (self.cpu.model, self.cpu.physical_cores, self.cpu.logical_cores, self.cpu.usable_cores),
            "ram_gib": round(self.ram_total_bytes / GIB),
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and strings for JSON; the fingerprint is included."""
        return {"fingerprint": self.fingerprint(), **asdict(self)}


@dataclass(frozen=True, slots=True)
class Device:
    """What is tuned: one GPU, or the CPU with all memory that it may use.

    ``why`` says in one line why this device was taken. ``class_hint`` is a short spelling of the device's
    model, such as ``h100`` or ``cpu``, for finding the search space that was written for it.
    """

    kind: Literal["cuda", "cpu"]
    name: str
    total_bytes: int
    compute_capability: tuple[int, int] | None = None
    class_hint: str = ""
    gpu: Gpu | None = None
    why: str = ""
