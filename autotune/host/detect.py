"""Reads the whole host: GPUs, CPU, memory, and what runs on them."""

import platform
from pathlib import Path

from autotune.host.cgroup import read_limits
from autotune.host.cpu import read_cpu, read_memory
from autotune.host.nvml import Nvml, NvmlReading
from autotune.host.types import Host


def open_nvml() -> Nvml:
    """NVML of this machine. ``pynvml`` is imported here, since only those who ask for GPUs need it."""
    import pynvml

    return Nvml(pynvml, host_memory=lambda: read_memory(read_limits()))


def read_host(nvml: Nvml | None = None, root: Path = Path("/")) -> Host:
    """This machine now. Never raises for a missing or broken driver: ``gpu_problem`` says what is wrong."""
    limits = read_limits(root)
    total_bytes, available_bytes = read_memory(limits)
    reading: NvmlReading = (nvml or open_nvml()).read()
    return Host(
        cpu=read_cpu(limits, root),
        ram_total_bytes=total_bytes,
        ram_available_bytes=available_bytes,
        gpus=reading.gpus,
        driver_version=reading.driver_version,
        cuda_version=reading.cuda_version,
        gpu_problem=reading.problem,
        os=_os_name(),
        kernel=platform.release(),
        python=platform.python_version(),
    )


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()
