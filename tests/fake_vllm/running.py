"""Starts the stand-in for a test and speaks to it; ends whatever is left of it afterwards.

with serve(python, "--max-num-seqs", "8") as server:
    events = server.stream({"prompt": [1, 2, 3], "max_tokens": 4})
"""

import http.client
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

READY_LIMIT_S = 20.0


@dataclass
class Server:
    """One started stand-in: its API server process, its port and its log."""

    process: "subprocess.Popen[bytes]"
    port: int
    log_file: Path

    @property
    def log(self) -> str:
        """All that both processes have written so far."""
        return self.log_file.read_text(errors="replace")

    def ask(self, path: str, body: Mapping[str, Any] | None = None, method: str | None = None) -> tuple[int, Any]:
        """Status and decoded answer (text where it is no JSON) of one request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            data = None if body is None else json.dumps(dict(body))
            connection.request(method or ("GET" if body is None else "POST"), path, data)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        with suppress(ValueError):
            return answer.status, json.loads(text)
        return answer.status, text

    def stream(self, body: Mapping[str, Any], path: str = "/v1/completions", limit_s: float = 30.0) -> list[Any]:
        """All events of one streamed request, decoded; the closing one stays the text ``[DONE]``."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=limit_s)
        usage = {"stream": True, "stream_options": {"include_usage": True}}
        try:
            connection.request("POST", path, json.dumps({**body, **usage}))
            lines = connection.getresponse().read().decode().split("\n\n")
        finally:
            connection.close()
        texts = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        return [text if text == "[DONE]" else json.loads(text) for text in texts]

    def metric(self, name: str, **labels: str) -> float:
        """One value of ``/metrics``, by its name without ``vllm:`` and by some of its labels."""
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        for line in str(self.ask("/metrics")[1]).splitlines():
            if line.startswith(f"vllm:{name}{{") and all(label in line for label in wanted):
                return float(line.rpartition(" ")[2])
        raise KeyError(name)

    def family(self) -> dict[str, int]:
        """Running processes of the server's session: name → pid."""
        found = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                head, _, tail = stat.read_text().rpartition(")")
                state, _, _, session, *_ = tail.split()
                if session == str(self.process.pid) and state not in "ZX":
                    found[head.partition("(")[2]] = int(stat.parent.name)
        return found

    def wait_ready(self) -> bool:
        """Whether the server came up; False once it has ended."""
        end = time.monotonic() + READY_LIMIT_S
        while self.process.poll() is None and time.monotonic() < end:
            with suppress(OSError, http.client.HTTPException):
                return self.ask("/health")[0] == 200
            time.sleep(0.01)
        return False


def free_port() -> int:
    """A port that nobody uses at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def launch(
    python: Path, *flags: str, model: str = "tiny", env: Mapping[str, str] | None = None, port: int = 0
) -> Iterator[Server]:
    """Start ``vllm serve`` and do not wait for it."""
    port = port or free_port()
    argv = [str(python), "-m", "vllm.entrypoints.cli.main", "serve", model, "--host", "127.0.0.1", "--port", str(port)]
    with tempfile.NamedTemporaryFile(suffix=".log") as log:
        process = subprocess.Popen(
            [*argv, *flags],
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "VLLM_SERVER_DEV_MODE": "1", **(env or {})},
        )
        try:
            yield Server(process, port, Path(log.name))
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def serve(python: Path, *flags: str, **options: Any) -> Iterator[Server]:
    """Start ``vllm serve`` and wait until it is healthy; options as for ``launch``."""
    with launch(python, *flags, **options) as server:
        if not server.wait_ready():
            raise AssertionError(f"the stand-in did not come up:\n{server.log}")
        yield server
