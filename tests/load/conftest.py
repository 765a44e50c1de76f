"""Starts mock servers in processes of their own."""

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from autotune.load.types import Target

MOCK = Path(__file__).with_name("mock_server.py")


class Mock:
    """A running mock server."""

    def __init__(self, port: int) -> None:
        self.target = Target(f"http://127.0.0.1:{port}", "m")

    def stats(self) -> dict[str, Any]:
        """What the server counted."""
        with urllib.request.urlopen(f"{self.target.base_url}/stats", timeout=10) as answer:
            return json.load(answer)


@pytest.fixture
def mock(tmp_path: Path) -> Iterator[Callable[..., Mock]]:
    """A function that starts a mock server with options; all are stopped at the end of the test."""
    running: list[subprocess.Popen[bytes]] = []

    def start(**options: Any) -> Mock:
        port_file = tmp_path / f"port{len(running)}"
        running.append(subprocess.Popen([sys.executable, MOCK, port_file, json.dumps(options)]))
        deadline = time.monotonic() + 20
        while not port_file.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        return Mock(int(port_file.read_text()))

    yield start
    for process in running:
        process.kill()
        process.wait()
