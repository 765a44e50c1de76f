"""Real children that behave as badly as vLLM can: all of a family ends, and nobody else does."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from autotune.engine import procfs
from autotune.engine.process import ENGINE_MARK, RUN_MARK, Family, find_marked, send, start
from autotune.engine.procfs import ProcessId

RUN = f"test-run-{os.getpid()}"
Spawn = Callable[..., Family]


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[Spawn]:
    """Start Python code as an engine's leader; whatever it leaves is ended after the test."""
    families: list[Family] = []

    def go(code: str, engine: str = "e1", env: dict[str, str] | None = None) -> Family:
        marks = {RUN_MARK: RUN, ENGINE_MARK: engine}
        argv = [sys.executable, "-c", textwrap.dedent(code)]
        child = start(argv, env={**os.environ, **marks, **(env or {})}, log_path=tmp_path / f"{engine}.log")
        families.append(Family(child, RUN, engine))
        return families[-1]

    yield go
    for family in families:
        family.stop(grace_s=0)


def until(condition: Callable[[], object], limit_s: float = 10.0) -> None:
    """Wait until the condition holds, or fail."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "condition never came true"
        time.sleep(0.02)


SLEEP = "import time; print(1, flush=True); time.sleep(600)"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + SLEEP
LEAVES_ORPHANS = f"""
    import os, subprocess, sys, time
    inner = "import subprocess as s, sys; s.Popen([sys.executable, '-c', {SLEEP!r}], start_new_session=True)"
    subprocess.Popen([sys.executable, "-c", inner]).wait()
    subprocess.Popen([sys.executable, "-c", {DEAF!r}])
    time.sleep(float(os.environ.get("LINGER", "600")))
"""


def test_leader_runs_in_its_own_session_and_logs_both_streams(spawn: Spawn, tmp_path: Path) -> None:
    family = spawn("import sys; print('to stdout', flush=True); sys.exit('to stderr')")
    until(lambda: family.leader.poll() is not None)
    stat = procfs.read_stat(family.leader.id.pid)
    assert stat is not None and stat.sid == stat.pid == stat.pgid
    assert (tmp_path / "e1.log").read_text().split("\n")[:2] == ["to stdout", "to stderr"]


@pytest.mark.parametrize(("code", "expected"), [("raise SystemExit(0)", 0), ("raise SystemExit(3)", 3)])
def test_exit_code_is_seen_without_freeing_the_pid(spawn: Spawn, code: str, expected: int) -> None:
    family = spawn(code)
    until(lambda: family.leader.poll() is not None)
    assert family.leader.poll() == expected
    assert procfs.read_stat(family.leader.id.pid) is not None
    assert family.stop().exit_code == expected
    assert procfs.read_stat(family.leader.id.pid) is None
    assert family.leader.poll() == expected


def test_death_by_signal_is_a_negative_exit_code(spawn: Spawn) -> None:
    family = spawn(SLEEP)
    os.kill(family.leader.id.pid, signal.SIGKILL)
    until(lambda: family.leader.poll() is not None)
    assert family.leader.poll() == -signal.SIGKILL


def test_polite_child_ends_by_sigterm_alone(spawn: Spawn) -> None:
    family = spawn(SLEEP)
    report = family.stop()
    assert (report.exit_code, report.killed, report.survivors) == (-signal.SIGTERM, False, ())
    assert report.stop_s < 2


def test_child_that_ignores_sigterm_is_killed_after_the_grace(spawn: Spawn, tmp_path: Path) -> None:
    family = spawn(DEAF)
    until(lambda: "1" in (tmp_path / "e1.log").read_text())
    report = family.stop(grace_s=0.3)
    assert (report.exit_code, report.killed) == (-signal.SIGKILL, True)
    assert 0.3 <= report.stop_s < 3


@pytest.mark.parametrize("linger", ["600", "0"], ids=["leader alive", "leader dead"])
def test_reparented_and_resessioned_descendants_end_too(spawn: Spawn, linger: str) -> None:
    family = spawn(LEAVES_ORPHANS, env={"LINGER": linger})
    expected = 3 if linger == "600" else 2
    until(lambda: len(family.members()) == expected and (linger == "600" or family.leader.poll() is not None))
    orphans = [stat.id for stat in family.members()]
    assert family.stop(grace_s=0.3).survivors == ()
    assert not any(procfs.alive(orphan) for orphan in orphans)
    assert find_marked(RUN) == []


def test_descendant_without_our_marks_is_found_through_the_session(spawn: Spawn) -> None:
    family = spawn(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SLEEP!r}], env={{}})")
    until(lambda: len(family.members()) == 2)
    family.stop(grace_s=0.2)
    assert family.members() == []


def test_foreign_processes_are_left_alone(spawn: Spawn) -> None:
    look_alikes = [
        subprocess.Popen([sys.executable, "-c", SLEEP], env={**os.environ, **marks}, stdout=subprocess.DEVNULL)
        for marks in ({}, {RUN_MARK: RUN, ENGINE_MARK: "other"}, {RUN_MARK: "other", ENGINE_MARK: "e1"})
    ]
    try:
        spawn(DEAF).stop(grace_s=0.2)
        assert all(other.poll() is None for other in look_alikes)
    finally:
        for other in look_alikes:
            other.kill()
            other.wait()


def test_stop_twice_and_after_the_end(spawn: Spawn) -> None:
    family = spawn("raise SystemExit(7)")
    until(lambda: family.leader.poll() is not None)
    assert family.stop().exit_code == 7
    again = family.stop()
    assert (again.exit_code, again.survivors) == (7, ())
    assert again.stop_s < 1


def test_a_pid_with_another_start_time_is_never_signalled(spawn: Spawn) -> None:
    real = spawn(SLEEP).leader.id
    assert not send(ProcessId(real.pid, real.started_ticks - 1), signal.SIGKILL)
    time.sleep(0.1)
    assert procfs.alive(real)
    assert send(real, signal.SIGKILL)
    until(lambda: not procfs.alive(real))


def test_without_pidfds_the_start_time_still_counts(spawn: Spawn, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    family = spawn(DEAF)
    real = family.leader.id
    assert not send(ProcessId(real.pid, real.started_ticks - 1), signal.SIGKILL)
    assert family.stop(grace_s=0.3).exit_code in (-signal.SIGKILL, -signal.SIGTERM)
    assert not procfs.alive(real)


SHARED_MEMORY = """
    import signal, time
    from multiprocessing import resource_tracker, shared_memory
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    segment = shared_memory.SharedMemory(create=True, size=4096)
    {extra}
    print(segment.name, flush=True)
    time.sleep(600)
"""


def shared_memory_name(log: Path) -> Path:
    until(lambda: log.read_text().endswith("\n"))
    return Path("/dev/shm") / log.read_text().strip()


def test_python_removes_the_shared_memory_of_a_killed_family(spawn: Spawn, tmp_path: Path) -> None:
    family = spawn(SHARED_MEMORY.format(extra=""))
    segment = shared_memory_name(tmp_path / "e1.log")
    report = family.stop(grace_s=0.1)
    assert not segment.exists()
    assert (report.survivors, report.files_removed) == ((), ())


UNTRACK = "resource_tracker.unregister(segment._name, 'shared_memory')"


def test_shared_memory_that_nobody_tracks_is_removed(spawn: Spawn, tmp_path: Path) -> None:
    family = spawn(SHARED_MEMORY.format(extra=UNTRACK))
    segment = shared_memory_name(tmp_path / "e1.log")
    assert family.stop(grace_s=0.1).files_removed == (str(segment),)
    assert not segment.exists()


def test_shared_memory_of_a_family_that_others_killed_is_removed(spawn: Spawn, tmp_path: Path) -> None:
    family = spawn(SHARED_MEMORY.format(extra=UNTRACK))
    segment = shared_memory_name(tmp_path / "e1.log")
    family.note_files()
    os.killpg(family.leader.id.pid, signal.SIGKILL)
    until(lambda: family.members() == [])
    assert family.stop().files_removed == (str(segment),)


def test_shared_memory_that_a_stranger_uses_stays(spawn: Spawn, tmp_path: Path) -> None:
    family = spawn(SHARED_MEMORY.format(extra=UNTRACK))
    segment = shared_memory_name(tmp_path / "e1.log")
    with segment.open("rb"):
        assert family.stop(grace_s=0.1).files_removed == ()
    assert segment.exists()
    segment.unlink()


SOCKET = """
    import signal, socket, sys, time
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    bound = socket.socket(socket.AF_UNIX)
    bound.bind({path!r})
    bound.listen()
    print("bound", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A socket's path holds at most 107 characters."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.mark.parametrize(("name", "goes"), [(str(uuid4()), True), ("agent.sock", False)])
def test_sockets_under_random_names_go_with_their_family(
    spawn: Spawn, tmp_path: Path, short_folder: Path, name: str, goes: bool
) -> None:
    path = short_folder / name
    family = spawn(SOCKET.format(path=str(path)))
    until(lambda: (tmp_path / "e1.log").read_text().endswith("\n"))
    assert family.stop().files_removed == ((str(path),) if goes else ())
    assert path.exists() != goes


def test_a_socket_that_another_process_bound_anew_stays(spawn: Spawn, tmp_path: Path, short_folder: Path) -> None:
    path = short_folder / str(uuid4())
    family = spawn(SOCKET.format(path=str(path)))
    until(lambda: (tmp_path / "e1.log").read_text().endswith("\n"))
    family.note_files()
    path.unlink()
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.bind(str(path))
        assert family.stop().files_removed == () and path.exists()


def test_the_file_that_the_log_names_goes_and_no_other(spawn: Spawn, tmp_path: Path) -> None:
    meeting, other = tmp_path / f"vllm_dist_{uuid4().hex}", tmp_path / "notes.txt"
    meeting.write_text("0")
    other.write_text("0")
    log = tmp_path / "engine.log"
    log.write_text("".join(f"rank=0 distributed_init_method=file://{p} backend=gloo\n" for p in (meeting, other)))
    family = spawn(SLEEP)
    family.note_files(log)
    assert family.stop().files_removed == (str(meeting),)
    assert other.exists() and not meeting.exists()
