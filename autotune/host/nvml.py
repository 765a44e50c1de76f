"""GPUs through NVML, NVIDIA's management library.

Everything goes through one ``Nvml`` object that holds the ``pynvml`` module it was given, so that tests can
give another one. NVML refuses much, for many reasons: no driver, a driver that was upgraded under the running
kernel module, a container without rights, a card that does not know a counter, a GPU that fell off the bus.
A refusal that leaves no GPU becomes one clear sentence (``problem``); a refused detail becomes ``None``.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import psutil

from autotune.host.types import Gpu, GpuProcess

T = TypeVar("T")

THROTTLE_REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
    0x100: "display clock",
}


@dataclass(frozen=True, slots=True)
class NvmlReading:
    """What NVML tells about this machine; ``problem`` is set where it tells of no usable GPU."""

    gpus: tuple[Gpu, ...] = ()
    driver_version: str | None = None
    cuda_version: str | None = None
    problem: str | None = None


@dataclass
class Nvml:
    """NVML, opened once and kept open. Handles are looked up by UUID and cached.

    ``host_memory`` gives (total, available) bytes of RAM, for boards whose GPU has no memory of its own.
    """

    pynvml: Any
    root: Path = Path("/")
    host_memory: Callable[[], tuple[int, int]] = lambda: (0, 0)
    process_name: Callable[[int], str | None] = lambda pid: _psutil_name(pid)
    _handles: dict[str, Any] = field(default_factory=dict)

    def read(self) -> NvmlReading:
        """Every GPU of this machine. Never raises: what went wrong is in ``problem``."""
        try:
            self.pynvml.nvmlInit()
        except self.pynvml.NVMLError as error:
            return NvmlReading(problem=self._no_nvml(error))
        driver = self._try(self.pynvml.nvmlSystemGetDriverVersion)
        cuda = self._try(self.pynvml.nvmlSystemGetCudaDriverVersion)
        gpus = tuple(
            gpu for index in range(self._try(self.pynvml.nvmlDeviceGetCount) or 0) for gpu in self._gpus(index)
        )
        problem = None if any(gpu.problem is None for gpu in gpus) else _none_usable(gpus)
        return NvmlReading(gpus, driver, f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None, problem)

    def free_bytes(self, uuid: str) -> int | None:
        """Free memory of a GPU now."""
        memory = self._ask(uuid, "nvmlDeviceGetMemoryInfo")
        return None if memory is None else int(memory.free)

    def compute_pids(self, uuid: str) -> frozenset[int] | None:
        """Processes that compute on a GPU now; pids are the host's, also inside a container."""
        processes = self._ask(uuid, "nvmlDeviceGetComputeRunningProcesses")
        return None if processes is None else frozenset(process.pid for process in processes)

    def energy_mj(self, uuid: str) -> int | None:
        """Millijoules that a GPU has used since its driver was loaded."""
        return _integer(self._ask(uuid, "nvmlDeviceGetTotalEnergyConsumption"))

    def sm_clock_mhz(self, uuid: str) -> int | None:
        """The clock of a GPU's multiprocessors now."""
        return _integer(self._ask(uuid, "nvmlDeviceGetClockInfo", self.pynvml.NVML_CLOCK_SM))

    def throttle_reasons(self, uuid: str) -> tuple[str, ...] | None:
        """Why a GPU's clock is held down now; empty where it is not."""
        bits = self._ask(uuid, "nvmlDeviceGetCurrentClocksThrottleReasons")
        return None if bits is None else tuple(name for bit, name in THROTTLE_REASONS.items() if bits & bit)

    def _ask(self, uuid: str, function: str, *arguments: Any) -> Any:
        """One question about one GPU, or None where it is not answered."""
        if uuid not in self._handles:
            self._try(self.pynvml.nvmlInit)
            handle = self._try(self.pynvml.nvmlDeviceGetHandleByUUID, uuid)
            if handle is None:
                return None
            self._handles[uuid] = handle
        return self._try(getattr(self.pynvml, function), self._handles[uuid], *arguments)

    def _try(self, function: Callable[..., T], *arguments: Any) -> T | None:
        try:
            return function(*arguments)
        except self.pynvml.NVMLError:
            return None

    def _gpus(self, index: int) -> Iterator[Gpu]:
        """One GPU, or each of its MIG instances."""
        try:
            handle = self.pynvml.nvmlDeviceGetHandleByIndex(index)
            if self._mig_mode(handle):
                yield from self._instances(index, handle)
            else:
                yield self._gpu(index, handle, handle)
        except self.pynvml.NVMLError as error:
            yield _unusable(index, self._text(error))

    def _mig_mode(self, handle: Any) -> bool:
        modes = self._try(self.pynvml.nvmlDeviceGetMigMode, handle)
        return bool(modes and modes[0])

    def _instances(self, index: int, parent: Any) -> Iterator[Gpu]:
        """MIG instances have memory and a UUID of their own; clocks and power are the whole card's."""
        count = self._try(self.pynvml.nvmlDeviceGetMaxMigDeviceCount, parent) or 0
        found = [self._try(self.pynvml.nvmlDeviceGetMigDeviceHandleByIndex, parent, i) for i in range(count)]
        instances = [handle for handle in found if handle is not None]
        if not instances:
            yield _unusable(index, "MIG mode is on, but the card has no instance (nvidia-smi mig -cgi creates one)")
        for handle in instances:
            yield self._gpu(index, handle, parent, mig=True)

    def _gpu(self, index: int, handle: Any, card: Any, mig: bool = False) -> Gpu:
        nvml, ask = self.pynvml, self._try
        total, free, unified = self._memory(handle)
        power_mw = ask(nvml.nvmlDeviceGetEnforcedPowerLimit, card)
        return Gpu(
            index=index,
            uuid=nvml.nvmlDeviceGetUUID(handle),
            name=nvml.nvmlDeviceGetName(handle),
            total_bytes=total,
            free_bytes=free,
            compute_capability=_pair(ask(nvml.nvmlDeviceGetCudaComputeCapability, card)),
            power_limit_w=power_mw / 1000 if power_mw else None,
            mig=mig,
            unified_memory=unified,
            pcie_generation=ask(nvml.nvmlDeviceGetMaxPcieLinkGeneration, card),
            pcie_width=ask(nvml.nvmlDeviceGetMaxPcieLinkWidth, card),
            sm_clock_mhz=ask(nvml.nvmlDeviceGetClockInfo, card, nvml.NVML_CLOCK_SM),
            max_sm_clock_mhz=ask(nvml.nvmlDeviceGetMaxClockInfo, card, nvml.NVML_CLOCK_SM),
            processes=tuple(self._processes(handle)),
        )

    def _memory(self, handle: Any) -> tuple[int, int, bool]:
        """(total, free, shared with the CPU). A GPU without memory of its own reports none: it uses RAM.

        What the driver reserves for itself is taken off the total: what is left is what CUDA, and so vLLM's
        ``gpu-memory-utilization``, calls the GPU's memory (equal to the byte on an H200). Drivers before 515
        do not tell it apart.
        """
        second = self._try(self.pynvml.nvmlDeviceGetMemoryInfo, handle, self.pynvml.nvmlMemory_v2)
        memory = second or self._try(self.pynvml.nvmlDeviceGetMemoryInfo, handle)
        if memory is None or not memory.total:
            return *self.host_memory(), True
        return int(memory.total) - int(second.reserved if second else 0), int(memory.free), False

    def _processes(self, handle: Any) -> Iterator[GpuProcess]:
        seen = set()
        kinds: tuple[tuple[Literal["compute", "graphics"], str], ...] = (
            ("compute", "nvmlDeviceGetComputeRunningProcesses"),
            ("graphics", "nvmlDeviceGetGraphicsRunningProcesses"),
        )
        for kind, function in kinds:
            for process in self._try(getattr(self.pynvml, function), handle) or ():
                if process.pid not in seen:
                    seen.add(process.pid)
                    yield GpuProcess(process.pid, self._name(process.pid), process.usedGpuMemory, kind)

    def _name(self, pid: int) -> str | None:
        name = self._try(self.pynvml.nvmlSystemGetProcessName, pid)
        return Path(name).name if name else self.process_name(pid)

    def _text(self, error: Exception) -> str:
        lost = getattr(error, "value", None) == self.pynvml.NVML_ERROR_GPU_IS_LOST
        return f"{error}: the GPU fell off the bus, reset it or reboot" if lost else str(error)

    def _no_nvml(self, error: Exception) -> str:
        """Why NVML does not open, in one sentence with what to do."""
        nvml, code = self.pynvml, getattr(error, "value", None)
        if code in (nvml.NVML_ERROR_LIBRARY_NOT_FOUND, nvml.NVML_ERROR_DRIVER_NOT_LOADED):
            return self._no_driver(loaded=code == nvml.NVML_ERROR_LIBRARY_NOT_FOUND)
        if code == nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
            return "the NVIDIA driver was upgraded while its old kernel module still runs: reboot, or reload the module"
        if code == nvml.NVML_ERROR_NO_PERMISSION:
            return "no permission to use the NVIDIA driver: check the rights of /dev/nvidia*"
        return f"the NVIDIA driver does not answer ({error}): does nvidia-smi work?"

    def _no_driver(self, loaded: bool) -> str:
        if loaded and (self.root / "proc/driver/nvidia/version").exists():
            return (
                "the NVIDIA kernel driver is loaded, but libnvidia-ml.so.1 is not here: "
                "in a container, start it with the NVIDIA runtime (docker run --gpus all)"
            )
        if _nvidia_on_bus(self.root):
            return "an NVIDIA GPU is on the PCI bus, but no driver is loaded: install the driver, then check nvidia-smi"
        return "no NVIDIA driver and no NVIDIA GPU found"


def _none_usable(gpus: tuple[Gpu, ...]) -> str:
    if not gpus:
        return "the NVIDIA driver works, but shows no GPU"
    return "; ".join(f"GPU {gpu.index}: {gpu.problem}" for gpu in gpus)


def _unusable(index: int, problem: str) -> Gpu:
    return Gpu(index, "", "unknown", 0, 0, problem=problem)


def _integer(value: Any) -> int | None:
    return None if value is None else int(value)


def _pair(value: Any) -> tuple[int, int] | None:
    return (int(value[0]), int(value[1])) if value else None


def _psutil_name(pid: int) -> str | None:
    """The name of a process of this machine; in a container the pid may be unknown or hidden."""
    try:
        return psutil.Process(pid).name()
    except psutil.Error:
        return None


def _nvidia_on_bus(root: Path) -> bool:
    """Whether a display or 3D controller (class 0x03) of NVIDIA (vendor 0x10de) is on the PCI bus."""
    for device in (root / "sys/bus/pci/devices").glob("*"):
        try:
            vendor, kind = (device / "vendor").read_text().strip(), (device / "class").read_text().strip()
        except OSError:
            continue
        if vendor == "0x10de" and kind.startswith("0x03"):
            return True
    return False
