"""When a boot has hung: judged by each phase's own history and by signs of life, never by one number for all.

Three rules, each of which ends a boot in bounded time:

    idle      nothing happens: no log line, no bytes read or written, less than 5 % of a core, for ``idle_s``
    overdue   the phase has taken ``factor`` times its slowest so far (at least ``floor_s``), with neither a
              log line nor I/O for ``quiet_s``: a deadlocked NCCL burns all its cores and says nothing
    cap       the phase has taken ``cap_s``, whatever it does

A slow download or a cold compile reads, writes and logs, so it is given time; a phase without a history is
held to ``unknown_s`` instead. vLLM's complaint that it waits for a shared-memory block is not a sign of life.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from autotune.engine import procfs
from autotune.engine.procfs import TICKS_PER_S, ProcessStat

IDLE_CORES = 0.05
MIN_IO_BYTES = 64 * 1024
WAITING = re.compile(rb"No available shared memory broadcast block")


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """Limits in seconds; see the module text. ``history_s`` maps a phase's name to its slowest time so far."""

    history_s: Mapping[str, float] = field(default_factory=dict)
    factor: float = 5.0
    floor_s: float = 120.0
    unknown_s: float = 900.0
    quiet_s: float = 60.0
    idle_s: float = 120.0
    cap_s: float = 7200.0

    def limit_s(self, phase: str) -> float:
        """After how many seconds the phase is overdue."""
        slowest_s = self.history_s.get(phase)
        return self.unknown_s if slowest_s is None else max(self.floor_s, self.factor * slowest_s)

    def learned(self, phases_s: Mapping[str, float]) -> "Deadlines":
        """These deadlines with one more good boot in the history."""
        seen = {name: max(seconds, self.history_s.get(name, 0.0)) for name, seconds in phases_s.items()}
        return replace(self, history_s={**self.history_s, **seen})


class Progress:
    """Signs of life of one boot. ``clock`` returns monotonic seconds."""

    def __init__(self, deadlines: Deadlines, clock: Callable[[], float]) -> None:
        self._deadlines = deadlines
        self._clock = clock
        self._phase = ""
        self._cpu_ticks: dict[int, int] = {}
        self._io_bytes: dict[int, int] = {}
        self._phase_at = self._active_at = self._spoke_at = self._sampled_at = clock()

    def entered(self, phase: str) -> None:
        """The boot has reached a phase."""
        self._phase = phase
        self._phase_at = self._spoke_at = self._active_at = self._clock()

    def logged(self, lines: Iterable[bytes]) -> None:
        """The engine has written log lines."""
        if any(not WAITING.search(line) for line in lines):
            self._spoke_at = self._active_at = self._clock()

    def sampled(self, members: Iterable[ProcessStat]) -> None:
        """The family's processes at this moment: their CPU time and I/O since the last sample count as life."""
        stats, now = list(members), self._clock()
        elapsed_s = max(now - self._sampled_at, 1e-3)
        cpu = {stat.pid: stat.cpu_ticks for stat in stats}
        moved = {stat.pid: procfs.io_bytes(stat.pid) for stat in stats}
        if _grown(cpu, self._cpu_ticks) / TICKS_PER_S > IDLE_CORES * elapsed_s:
            self._active_at = now
        if _grown(moved, self._io_bytes) > MIN_IO_BYTES:
            self._active_at = self._spoke_at = now
        self._cpu_ticks, self._io_bytes, self._sampled_at = cpu, moved, now

    def verdict(self) -> str | None:
        """Why the boot has hung, in one sentence, or None while it has not."""
        now, limits = self._clock(), self._deadlines
        in_phase_s, limit_s = now - self._phase_at, limits.limit_s(self._phase)
        if now - self._active_at > limits.idle_s:
            return f"no log line, no I/O and no CPU use for {limits.idle_s:.0f} s"
        if in_phase_s > limit_s and now - self._spoke_at > limits.quiet_s:
            return f"phase took over {limit_s:.0f} s, with neither log line nor I/O for {limits.quiet_s:.0f} s"
        if in_phase_s > limits.cap_s:
            return f"phase took over {limits.cap_s:.0f} s"
        return None


def _grown(now: Mapping[int, int], before: Mapping[int, int]) -> int:
    """How much the counters have grown, by process; a new process counts from zero."""
    return sum(max(0, value - before.get(pid, 0)) for pid, value in now.items())
