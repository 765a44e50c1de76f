"""Starts ``exact_server``, which is compiled first, and reads what it says it did."""

import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

SOURCE = Path(__file__).with_name("exact_server.cpp")
COMPILER = shutil.which("c++") or shutil.which("g++")


@dataclass(frozen=True, slots=True)
class Served:
    """One request as the server saw it: seconds of ``time.perf_counter``."""

    asked: int
    received: float
    sent: npt.NDArray[np.float64]

    @property
    def whole(self) -> bool:
        """Whether all its tokens were sent."""
        return len(self.sent) == self.asked


@dataclass(frozen=True, slots=True)
class ExactServer:
    """A running server."""

    url: str

    def served(self) -> list[Served]:
        """All requests so far, in the order of arrival."""
        with urllib.request.urlopen(f"{self.url}/served", timeout=10) as answer:
            numbers = np.frombuffer(answer.read())
        requests, at = [], 0
        while at < len(numbers):
            asked, sent, received = numbers[at : at + 3]
            at += 3 + int(sent)
            requests.append(Served(int(asked), received, numbers[at - int(sent) : at]))
        return requests


@contextmanager
def exact_server(folder: Path, *, ttft_s: float, itl_s: float, core: int | None = None) -> Iterator[ExactServer]:
    """A server whose files lie in ``folder``, on a core of its own where one is given. Needs ``COMPILER``."""
    assert COMPILER
    program, port_file = folder / "exact_server", folder / "port"
    port_file.unlink(missing_ok=True)
    subprocess.run([COMPILER, "-O2", "-std=c++17", "-o", program, SOURCE], check=True)
    pinned = [] if core is None else ["taskset", "-c", str(core)]
    process = subprocess.Popen([*pinned, program, port_file, str(ttft_s), str(itl_s)])
    try:
        while not port_file.exists():
            assert process.poll() is None
            time.sleep(0.02)
        yield ExactServer(f"http://127.0.0.1:{port_file.read_text()}")
    finally:
        process.kill()
        process.wait()
