"""Foreign processes that look like ours, and the proof that nobody touched them."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
from fake_vllm import make_fake_python
from fake_vllm.running import Server, serve

from autotune.engine.process import ENGINE_MARK, RUN_MARK, TUNER_MARK, tuner_mark

BYSTANDER = """
import os, signal, sys, time
def note(number, frame):
    with open(sys.argv[1], "a") as file:
        file.write(f"{os.getpid()} got signal {number}\\n")
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
    signal.signal(number, note)
time.sleep(7200)
"""


@dataclass(frozen=True)
class Seen:
    """A process, told apart from a later one with the same pid."""

    pid: int
    created: float

    @property
    def alive(self) -> bool:
        """Whether it still runs; a zombie does not."""
        try:
            process = psutil.Process(self.pid)
            return process.create_time() == self.created and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False


@contextlib.contextmanager
def bystanders(folder: Path) -> Iterator[Callable[[], int]]:
    """Foreign processes that look like ours; yields a function that counts those that were touched."""
    python = make_fake_python(folder / "foreign-venv", {"life_s": 7200})
    notes = folder / "signals.txt"
    notes.write_text("")
    argv = [sys.executable, "-c", BYSTANDER, str(notes)]
    titled = subprocess.Popen(["VLLM::EngineCore", *argv[1:]], executable=sys.executable, start_new_session=True)
    # An engine of another study, whose tuner (this process) lives.
    marks = {RUN_MARK: "another-study", ENGINE_MARK: "0123456789abcdef", TUNER_MARK: tuner_mark()}
    marked = subprocess.Popen(argv, env={**os.environ, **marks}, start_new_session=True)
    with serve(python) as server:
        others = [Seen(p.pid, psutil.Process(p.pid).create_time()) for p in (titled, marked)]
        others += [Seen(pid, psutil.Process(pid).create_time()) for pid in server.family().values()]
        try:
            yield lambda: _touched(others, notes, server)
        finally:
            for process in (titled, marked):
                process.kill()
                process.wait()


def _touched(others: list[Seen], notes: Path, server: Server) -> int:
    dead = sum(not seen.alive for seen in others)
    return dead + len(notes.read_text().splitlines()) + (server.ask("/health")[0] != 200)
