"""Starts engines and ends them completely, and nothing else.

An engine is a *family*: the leader that we started (``vllm serve``) and whatever it started in turn. vLLM's
own parent does not end its children when it is killed, and ``SIGTERM`` during an engine's start can hang for
ever, so:

    start   own session (setsid); run id and engine id in the environment, which every descendant inherits
    find    members are processes of the leader's session, and processes that carry both ids
    stop    SIGTERM to all, a few seconds, SIGKILL to all, again until a scan finds none

The leader's exit is read without freeing its pid (``WNOWAIT``), so that pid and session cannot be given to a
stranger before the family is gone. Signals go through a pidfd after the start time was compared: never by
name, never by port. Python's resource tracker is killed last, because once its family is dead it removes
their shared memory by itself; what stays all the same is removed (``remains``).
"""

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from autotune.engine import procfs, remains
from autotune.engine.procfs import ProcessId, ProcessStat
from autotune.engine.remains import Remains
from autotune.engine.types import StopReport

RUN_MARK = "AUTOTUNE_RUN_ID"
ENGINE_MARK = "AUTOTUNE_ENGINE"
TUNER_MARK = "AUTOTUNE_TUNER"
# The mark of a warm server in place of an engine's; as long as an engine's id, which is written over it in a
# fork.
SERVER_MARK = "warm-server-----"
TERM_GRACE_S = 5.0
KILL_LIMIT_S = 15.0
TRACKER_GRACE_S = 2.0


class Child(Protocol):
    """The leader of an engine's family, however it was started."""

    @property
    def id(self) -> ProcessId:
        """Its pid and start time."""

    def poll(self) -> int | None:
        """The exit code (negative: signal), None while it runs. Its pid stays taken."""

    def release(self) -> None:
        """Let the kernel forget the ended process."""


class PlainChild:
    """A child of this process."""

    def __init__(self, popen: "subprocess.Popen[bytes]") -> None:
        self._popen = popen
        stat = procfs.read_stat(popen.pid)
        # The child cannot have vanished: it stays a zombie until release().
        self._id = stat.id if stat else ProcessId(popen.pid, 0)

    @property
    def id(self) -> ProcessId:
        """Pid and start time."""
        return self._id

    def poll(self) -> int | None:
        """The exit code, without freeing the pid."""
        if self._popen.returncode is not None:
            return self._popen.returncode
        try:
            info = os.waitid(os.P_PID, self._id.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # someone else waited for it: gone, its code unknown
            return self._popen.poll()
        if info is None:
            return None
        return info.si_status if info.si_code == os.CLD_EXITED else -info.si_status

    def release(self) -> None:
        """Wait for the ended child, which frees its pid."""
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(timeout=1.0)


def start(argv: Sequence[str], *, env: Mapping[str, str], log_path: Path, pass_fds: Collection[int] = ()) -> PlainChild:
    """Start ``argv`` as the leader of its own session; both output streams are added to ``log_path``."""
    log_path.parent.mkdir(parents=True, exist_ok=True)
    with log_path.open("ab") as log:
        popen = subprocess.Popen(
            list(argv),
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=pass_fds,
        )
    return PlainChild(popen)


@dataclass(frozen=True, slots=True)
class Marked:
    """A running process of some tuner's, with what its environment says of its origin."""

    stat: ProcessStat
    run_id: str
    engine_id: str
    tuner: str

    @property
    def is_warm_server(self) -> bool:
        """Whether it holds vLLM's imports rather than an engine."""
        return self.engine_id == SERVER_MARK


def all_marked() -> list[Marked]:
    """Every running process of this user that an engine room started, whichever tuner it belongs to."""
    found = []
    for stat in procfs.all_stats():
        if stat.running and procfs.owner_uid(stat.pid) == os.getuid():
            environ = procfs.read_environ(stat.pid)
            run_id, engine_id, tuner = (environ.get(mark) for mark in (RUN_MARK, ENGINE_MARK, TUNER_MARK))
            if run_id and engine_id and tuner:
                found.append(Marked(stat, run_id, engine_id, tuner))
    return found


def find_marked(run_id: str, engine_id: str | None = None) -> list[ProcessStat]:
    """Running processes that carry the run id (and the engine id, where given) in their environment."""
    return [stat for stat in procfs.all_stats() if stat.running and _carries(stat.pid, run_id, engine_id)]


def _carries(pid: int, run_id: str, engine_id: str | None) -> bool:
    environ = procfs.read_environ(pid)
    return environ.get(RUN_MARK) == run_id and engine_id in (None, environ.get(ENGINE_MARK))


def tuner_mark() -> str:
    """Names this process, so that an engine can be asked later whether its tuner still lives."""
    stat = procfs.read_stat(os.getpid())
    started_ticks = stat.id.started_ticks if stat else 0
    return f"{os.getpid()}:{started_ticks}:{procfs.pid_namespace()}:{procfs.machine_boot_id()}"


def tuner_lives(mark: str) -> bool:
    """Whether the process that a tuner mark names still runs. A mark that cannot be judged from here counts
    as alive.
    """
    pid, _, rest = mark.partition(":")
    ticks, _, place = rest.partition(":")
    if not (pid.isdigit() and ticks.isdigit()) or place != f"{procfs.pid_namespace()}:{procfs.machine_boot_id()}":
        return True
    return procfs.alive(ProcessId(int(pid), int(ticks)))


def send(process: ProcessId, signum: int) -> bool:
    """Signal exactly this process; False where it is gone or not ours to signal."""
    try:
        fd = os.pidfd_open(process.pid)
    except OSError:  # gone; or a kernel or sandbox without pidfds
        return _kill_by_pid(process, signum)
    try:
        # The pidfd holds on to one process; the start time proves that it is the one meant.
        stat = procfs.read_stat(process.pid)
        if stat is None or stat.id != process:
            return False
        signal.pidfd_send_signal(fd, signum)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _kill_by_pid(process: ProcessId, signum: int) -> bool:
    if not procfs.alive(process):
        return False
    with suppress(OSError):
        os.kill(process.pid, signum)
        return True
    return False


@dataclass(slots=True)
class Family:
    """The leader and all its descendants, wherever they went."""

    leader: Child
    run_id: str
    engine_id: str
    _released: bool = field(default=False, init=False)
    _files: set[Remains] = field(default_factory=set, init=False)

    def members(self) -> list[ProcessStat]:
        """Running processes of this family. Reads only processes that are younger than the leader."""
        born = self.leader.id.started_ticks
        return [
            stat
            for stat in procfs.all_stats()
            if stat.running and stat.id.started_ticks >= born and self._is_member(stat)
        ]

    def _is_member(self, stat: ProcessStat) -> bool:
        in_session = not self._released and stat.sid == self.leader.id.pid
        return in_session or _carries(stat.pid, self.run_id, self.engine_id)

    def note_files(self, log_path: Path | None = None) -> None:
        """Remember which files are ours, in case nobody is left later who could show it."""
        self._files |= remains.used_by(self.members())
        self._files |= remains.named_in(log_path) if log_path else set()

    def stop(self, grace_s: float = TERM_GRACE_S) -> StopReport:
        """End the whole family, also when the leader is already dead. Safe to call again."""
        report = end(self.members, grace_s=grace_s, files=self._files)
        code = self._exit_code(limit_s=0.0 if report.survivors else 1.0)
        if not report.survivors:
            self.leader.release()
            self._released = True
        return StopReport(
            stop_s=report.stop_s,
            exit_code=code,
            killed=report.killed,
            survivors=report.survivors,
            files_removed=report.files_removed,
        )

    def _exit_code(self, limit_s: float) -> int | None:
        """The kernel tells a dead leader's code a moment after its last thread has gone."""
        deadline = time.monotonic() + limit_s
        while (code := self.leader.poll()) is None and time.monotonic() < deadline:
            time.sleep(0.01)
        return code


def end(
    members: Callable[[], Iterable[ProcessStat]],
    *,
    grace_s: float = TERM_GRACE_S,
    files: Collection[Remains] = (),
) -> StopReport:
    """SIGTERM, ``grace_s``, SIGKILL, until ``members`` finds nobody or ``KILL_LIMIT_S`` is over.

    ``files`` are removed with those that the members use.
    """
    began = time.monotonic()
    first = list(members())
    left = remains.used_by(first) | set(files)
    for stat in first:
        send(stat.id, signal.SIGTERM)
    _wait_gone(members, grace_s if first else 0.0)
    left |= remains.used_by(members())
    killed = _kill_all(members)
    return StopReport(
        stop_s=time.monotonic() - began,
        exit_code=None,
        killed=killed,
        survivors=tuple(sorted(stat.pid for stat in members())),
        files_removed=remains.remove(left),
    )


def _wait_gone(members: Callable[[], Iterable[ProcessStat]], limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    while left := list(members()):
        remaining_s = deadline - time.monotonic()
        if remaining_s <= 0:
            return False
        _wait_any_exit(left, min(remaining_s, 0.25))
    return True


def _wait_any_exit(stats: Sequence[ProcessStat], limit_s: float) -> None:
    """Sleep until one of the processes ends: a pidfd becomes readable then."""
    fds = []
    for stat in stats:
        with suppress(OSError):
            fds.append(os.pidfd_open(stat.pid))
    try:
        poller = select.poll()
        for fd in fds:
            poller.register(fd, select.POLLIN)
        poller.poll(limit_s * 1000 if len(fds) == len(stats) else 10)
    finally:
        for fd in fds:
            os.close(fd)


def _kill_all(members: Callable[[], Iterable[ProcessStat]]) -> bool:
    """SIGKILL until none is left; new ones may be forked while we look. True if anyone needed it."""
    began, killed = time.monotonic(), False
    while (left := list(members())) and (elapsed_s := time.monotonic() - began) < KILL_LIMIT_S:
        trackers = [stat for stat in left if _is_tracker(stat)]
        victims = [stat for stat in left if stat not in trackers]
        if not victims and elapsed_s < TRACKER_GRACE_S:
            _wait_any_exit(trackers, 0.25)
            continue
        for stat in victims or trackers:
            killed = send(stat.id, signal.SIGKILL) or killed
        _wait_any_exit(victims or trackers, 0.25)
    return killed


def _is_tracker(stat: ProcessStat) -> bool:
    return "multiprocessing.resource_tracker" in procfs.command_line(stat.pid)
