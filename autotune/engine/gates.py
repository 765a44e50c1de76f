"""What must hold before the next engine starts, and who else uses this machine.

An engine sizes its KV cache by the memory that it finds free, so that a predecessor's memory, which comes
back only seconds after its exit, or another tenant's, falsifies a boot in silence. A ``MemoryGate`` therefore
waits until no engine of the run is left and the free memory is back at the baseline that was read before the
first boot. Engines of ours that are still there are ended; others are named and left alone.

Inside a container NVML names processes by the host's pids. They are compared with those of the baseline only,
never with ours, and never signalled.
"""

import os
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal

from autotune.engine import procfs
from autotune.engine.process import Marked, all_marked, end, tuner_lives, tuner_mark
from autotune.engine.procfs import ProcessStat
from autotune.errors import EnvironmentFault, Interrupted
from autotune.host.cpu import available_ram_bytes
from autotune.host.nvml import Nvml
from autotune.host.types import Gpu, GpuProcess

MIB = 1024**2
GPU_TOLERANCE_BYTES = 64 * MIB
# RAM is shared with everything else on a machine; what others take in passing must not stop a study.
RAM_TOLERANCE_SHARE = 0.25
GATE_LIMIT_S = 60.0
SHORTEST_LOOK_S = 0.5
POLL_S = 0.2


def never() -> bool:
    """Nobody asks to stop."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryGate:
    """Call it before a boot: it returns once the device's memory is back, or raises ``EnvironmentFault``.

    ``free_bytes`` may answer None where the device does not tell; only the processes count then. ``holders``
    gives the pids that use the device now, ``known_holders`` those that did from the beginning.
    """

    device: str
    run_id: str
    baseline_bytes: int
    tolerance_bytes: int
    free_bytes: Callable[[], int | None]
    holders: Callable[[], Collection[int]]
    known_holders: frozenset[int] = frozenset()
    limit_s: float = GATE_LIMIT_S
    stop_requested: Callable[[], bool] = never

    def __call__(self) -> None:
        """Wait. Raises ``EnvironmentFault`` after ``limit_s`` seconds, ``Interrupted`` when asked to stop."""
        deadline = time.monotonic() + self.limit_s
        end(self._leftovers, grace_s=2.0)
        while not self._is_free():
            if self.stop_requested():
                raise Interrupted("Stopped while waiting for the device's memory.")
            if time.monotonic() > deadline:
                raise EnvironmentFault(self._complaint())
            time.sleep(POLL_S)

    def _leftovers(self) -> list[ProcessStat]:
        return [marked.stat for marked in all_marked() if self._is_leftover(marked)]

    def _is_leftover(self, marked: Marked) -> bool:
        """An engine of this run whose tuner we are, or whose tuner is dead."""
        ours = marked.run_id == self.run_id and not marked.is_warm_server
        return ours and (marked.tuner == tuner_mark() or not tuner_lives(marked.tuner))

    def _is_free(self) -> bool:
        if self._leftovers():
            return False
        free_bytes = self.free_bytes()
        return free_bytes is None or free_bytes >= self.baseline_bytes - self.tolerance_bytes

    def _complaint(self) -> str:
        if leftovers := self._leftovers():
            pids = ", ".join(str(stat.pid) for stat in leftovers)
            return f"Engine processes of this run do not end (pid {pids}). Reboot, or reset the device, and run again."
        newcomers = sorted(set(self.holders()) - self.known_holders)
        who = f" Using it now: pid {', '.join(map(str, newcomers))}." if newcomers else ""
        free_gib, baseline_gib = (self.free_bytes() or 0) / 1024**3, self.baseline_bytes / 1024**3
        return (
            f"Memory of {self.device} did not come back within {self.limit_s:.0f} s: {free_gib:.2f} GiB free, "
            f"{baseline_gib:.2f} GiB at the start.{who} End what uses it and run again; the study is kept."
        )


def gpu_gate(nvml: Nvml, gpu: Gpu, run_id: str, stop_requested: Callable[[], bool] = never) -> MemoryGate:
    """A gate for one GPU. What is free and who uses it now is the baseline."""
    free_bytes = nvml.free_bytes(gpu.uuid)

    def holders() -> Collection[int]:
        return nvml.compute_pids(gpu.uuid) or frozenset()

    return MemoryGate(
        device=f"GPU {gpu.index} ({gpu.name})",
        run_id=run_id,
        baseline_bytes=gpu.free_bytes if free_bytes is None else free_bytes,
        tolerance_bytes=GPU_TOLERANCE_BYTES,
        free_bytes=lambda: nvml.free_bytes(gpu.uuid),
        holders=holders,
        known_holders=frozenset(holders()),
        stop_requested=stop_requested,
    )


def ram_gate(run_id: str, stop_requested: Callable[[], bool] = never) -> MemoryGate:
    """A gate for engines on the CPU. The RAM that is available now is the baseline."""
    baseline_bytes = available_ram_bytes()
    return MemoryGate(
        device="this machine (RAM)",
        run_id=run_id,
        baseline_bytes=baseline_bytes,
        tolerance_bytes=int(baseline_bytes * RAM_TOLERANCE_SHARE),
        free_bytes=available_ram_bytes,
        holders=frozenset,
        stop_requested=stop_requested,
    )


@dataclass(frozen=True, slots=True)
class Tenant:
    """Somebody else's work on this machine. ``blocks`` says that measuring beside it would be worthless."""

    kind: Literal["gpu", "vllm", "cpu"]
    pids: tuple[int, ...]
    text: str
    blocks: bool


def find_tenants(
    *,
    gpu: Gpu | None = None,
    nvml: Nvml | None = None,
    usable_cores: float | None = None,
    sample_s: float = 1.0,
    patience_s: float = 10.0,
) -> tuple[Tenant, ...]:
    """Who else uses the device, serves with vLLM, or keeps more than a quarter of the cores busy.

    To be called while no engine of ours runs. With ``nvml`` the GPU is looked at anew, for up to ``patience_s``
    seconds while somebody uses it: a process that has just ended is listed a little longer. Takes ``sample_s`` seconds.
    """
    found = []
    if gpu is not None and (others := _gpu_users(gpu, nvml, patience_s)):
        names = ", ".join(f"{process.name or 'process'} (pid {process.pid})" for process in others)
        pids = tuple(process.pid for process in others)
        found.append(Tenant("gpu", pids, f"GPU {gpu.index} is also used by {names}", blocks=True))
    if servers := _foreign_vllm():
        listed = ", ".join(str(pid) for pid in servers)
        text = f"Another vLLM runs on this machine (pid {listed}); it takes CPU time and memory from measurements"
        found.append(Tenant("vllm", servers, text, blocks=False))
    strangers = Strangers(usable_cores or float(len(os.sched_getaffinity(0))))
    time.sleep(sample_s)
    if busy := strangers.tenant():
        found.append(busy)
    return tuple(found)


def _gpu_users(gpu: Gpu, nvml: Nvml | None, patience_s: float) -> tuple[GpuProcess, ...]:
    deadline = time.monotonic() + patience_s
    while nvml is not None and (pids := nvml.compute_pids(gpu.uuid)) is not None:
        if not pids or time.monotonic() > deadline:
            known = {process.pid: process for process in gpu.compute_processes}
            return tuple(known.get(pid) or GpuProcess(pid) for pid in sorted(pids))
        time.sleep(POLL_S)
    return gpu.compute_processes


def refuse_tenants(tenants: Collection[Tenant]) -> None:
    """Raise ``EnvironmentFault`` where a tenant makes measuring worthless."""
    if blocking := [tenant.text for tenant in tenants if tenant.blocks]:
        raise EnvironmentFault(f"{'; '.join(blocking)}. End it or choose another GPU: nothing was started or killed.")


def _foreign_vllm() -> tuple[int, ...]:
    """Servers and engine processes of vLLM that no tuner of ours started."""
    ours = {marked.stat.pid for marked in all_marked()}
    return tuple(sorted(stat.pid for stat in procfs.all_stats() if stat.pid not in ours and _is_vllm(stat)))


def _is_vllm(stat: ProcessStat) -> bool:
    words = procfs.command_line(stat.pid).split()
    if stat.name.startswith("VLLM::") or (words and words[0].startswith("VLLM::")):
        return True
    # A shell that has such words in a script it was given is no server.
    starts = {os.path.basename(word) for word in words[:4]}
    return ("vllm" in starts and "serve" in words[:5]) or "vllm.entrypoints.openai.api_server" in words[:4]


class Strangers:
    """The CPU time of processes that are neither ours nor engines of a tuner, from now on."""

    def __init__(self, usable_cores: float) -> None:
        self._usable_cores = usable_cores
        self._began = time.monotonic()
        self._before = {stat.id: stat.cpu_ticks for stat in _strangers()}

    def tenant(self) -> Tenant | None:
        """Who kept more than a quarter of the cores busy; those born meanwhile count in full, if they still run.

        None after less than half a second too: CPU time is counted in hundredths.
        """
        elapsed_s = time.monotonic() - self._began
        if elapsed_s < SHORTEST_LOOK_S:
            return None
        used = {stat.pid: stat.cpu_ticks - self._before.get(stat.id, 0) for stat in _strangers()}
        cores = sum(used.values()) / procfs.TICKS_PER_S / elapsed_s
        if cores <= self._usable_cores / 4:
            return None
        busiest = tuple(sorted(used, key=lambda pid: -used[pid])[:3])
        listed = ", ".join(str(pid) for pid in busiest)
        text = f"Other processes keep {cores:.1f} of {self._usable_cores:.0f} cores busy (most of it pid {listed})"
        return Tenant("cpu", busiest, text, blocks=False)


def _strangers() -> list[ProcessStat]:
    """Running processes that are neither this one, nor its load clients, nor a tuner's engines."""
    ours = {marked.stat.pid for marked in all_marked()} | {os.getpid()}
    return [stat for stat in procfs.all_stats() if stat.running and stat.pid not in ours and not _is_client(stat)]


def _is_client(stat: ProcessStat) -> bool:
    return stat.ppid == os.getpid() and "autotune.load.worker" in procfs.command_line(stat.pid)
