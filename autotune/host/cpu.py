"""The processor and the memory of this machine, as far as this process may use them."""

import os
import platform
from pathlib import Path

import psutil

from autotune.host.cgroup import Limits, read_limits
from autotune.host.types import Cpu

TUNING_FLAGS = (
    *("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_tile", "amx_bf16", "amx_int8"),
    *("asimd", "bf16", "i8mm", "sve", "sve2"),
)


def read_cpu(limits: Limits, root: Path = Path("/")) -> Cpu:
    """Model, cores and the instruction sets that vLLM's CPU kernels ask for."""
    rows = _cpuinfo(root)
    logical = psutil.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0))
    present = set((rows.get("flags") or rows.get("Features") or "").split())
    return Cpu(
        model=rows.get("model name") or platform.processor() or platform.machine(),
        physical_cores=psutil.cpu_count(logical=False) or logical,
        logical_cores=logical,
        usable_cores=float(min(allowed, limits.cores or allowed)),
        flags=tuple(flag for flag in TUNING_FLAGS if flag in present),
    )


def read_memory(limits: Limits) -> tuple[int, int]:
    """(total, available) bytes of memory, cut to what the container allows."""
    memory = psutil.virtual_memory()
    total = min(memory.total, limits.memory_bytes or memory.total)
    free = memory.available if limits.memory_free_bytes is None else limits.memory_free_bytes
    return total, min(memory.available, free, total)


def available_ram_bytes() -> int:
    """Memory that a new process could take now, in bytes."""
    return read_memory(read_limits())[1]


def _cpuinfo(root: Path) -> dict[str, str]:
    """The first processor's rows of ``/proc/cpuinfo``."""
    try:
        text = (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    rows = (line.partition(":") for line in text.split("\n\n", 1)[0].splitlines())
    return {key.strip(): value.strip() for key, _, value in rows}
