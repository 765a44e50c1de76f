"""Starts mock servers in processes of their own."""

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from autotune.load.types import Target

SCRIPT = Path(__file__).with_name("mock_server.py")


class Mock:
    """A running mock server."""

    def __init__(self, port: int) -> None:
        self.target = Target(f"http://127.0.0.1:{port}", "m")

    def stats(self) -> dict[str, Any]:
        """What the server counted."""
        with urllib.request.urlopen(f"{self.target.base_url}/stats", timeout=10) as answer:
            return json.load(answer)


class Servers:
    """Starts servers; ``close`` ends all that were started."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[subprocess.Popen[bytes]] = []

    def __call__(self, **options: Any) -> Mock:
        port_file = self._folder / f"port{len(self._running)}"
        self._running.append(subprocess.Popen([sys.executable, SCRIPT, port_file, json.dumps(options)]))
        deadline = time.monotonic() + 20
        while not port_file.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        return Mock(int(port_file.read_text()))

    def close(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()


@pytest.fixture
def mock(tmp_path: Path) -> Iterator[Callable[..., Mock]]:
    """A function that starts a mock server with options; all are stopped at the end of the test."""
    with closing(Servers(tmp_path)) as servers:
        yield servers
