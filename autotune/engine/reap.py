"""Finds and ends what a killed tuner left behind.

Every process that an engine room starts carries in its environment the run, the engine and the tuner (pid,
start time, pid namespace, machine boot). A leftover is a process of this user whose tuner does not run any
more. Where that cannot be told, because it was started in another container or by something else, it is none.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from autotune.engine import procfs
from autotune.engine.process import TERM_GRACE_S, all_marked, end, tuner_lives
from autotune.engine.procfs import ProcessId, ProcessStat
from autotune.engine.types import StopReport


@dataclass(frozen=True, slots=True)
class Leftover:
    """One process whose tuner is gone."""

    process: ProcessId
    run_id: str
    engine_id: str
    tuner_pid: int
    command: str


def find_leftovers(run_id: str | None = None) -> tuple[Leftover, ...]:
    """Processes that dead tuners left behind, of one run or of all; those of living tuners are not among
    them.
    """
    return tuple(
        Leftover(
            process=marked.stat.id,
            run_id=marked.run_id,
            engine_id=marked.engine_id,
            tuner_pid=int(marked.tuner.partition(":")[0]),
            command=procfs.command_line(marked.stat.pid) or marked.stat.name,
        )
        for marked in all_marked()
        if run_id in (None, marked.run_id) and not tuner_lives(marked.tuner)
    )


def reap(leftovers: Iterable[Leftover], grace_s: float = TERM_GRACE_S) -> StopReport:
    """End exactly the engines that these processes belong to, with what they start meanwhile."""
    engines = {(leftover.run_id, leftover.engine_id) for leftover in leftovers}

    def members() -> list[ProcessStat]:
        return [
            marked.stat
            for marked in all_marked()
            if (marked.run_id, marked.engine_id) in engines and not tuner_lives(marked.tuner)
        ]

    return end(members, grace_s=grace_s)
