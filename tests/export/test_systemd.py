import shutil
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from recommendations import CPU, FOLDER, HUB, SAMPLES
from systemd_words import Unit

from autotune.export.formats import FORMATS
from autotune.export.options import ExportOptions
from autotune.export.serving import serving
from autotune.store.recommendation import Recommendation

EACH = pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
SPECIFIERS = {"S": "/var/lib", "C": "/var/cache"}
needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="no systemd-analyze on this machine (apt-get install systemd)"
)


def unit(sample: Recommendation, options: ExportOptions | None = None) -> Unit:
    return Unit.parse(FORMATS["systemd"].render(sample, options or ExportOptions()))


@needs_systemd
@EACH
def test_systemd_finds_no_fault(sample: Recommendation, tmp_path: Path) -> None:
    file = tmp_path / f"{serving(sample).name}.service"
    file.write_text(FORMATS["systemd"].render(sample))
    done = subprocess.run(["systemd-analyze", "verify", file], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr.strip(), done.stderr


@needs_systemd
def test_systemd_calls_the_unit_well_hardened(tmp_path: Path) -> None:
    file = tmp_path / "x.service"
    file.write_text(FORMATS["systemd"].render(HUB))
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=30", "--no-pager", file]
    done = subprocess.run(command, capture_output=True, text=True)
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze cannot judge a file")
    assert done.returncode == 0, done.stdout[-400:]


@EACH
def test_systemd_starts_exactly_the_measured_command(sample: Recommendation) -> None:
    parsed, s = unit(sample, ExportOptions(vllm="/opt/my vllm/bin/vllm")), serving(sample)
    environment = parsed.environment(SPECIFIERS)
    assert parsed.command("ExecStart", environment, SPECIFIERS) == [
        "/usr/bin/env", "/opt/my vllm/bin/vllm", "serve", s.model, "--served-model-name", s.served_name,
        "--host", "127.0.0.1", "--port", "8000", *s.launch.argv(),
    ]  # fmt: skip
    assert dict(s.launch.env).items() <= environment.items()


def test_systemd_restarts_and_waits_as_long_as_a_start_may_take() -> None:
    parsed = unit(HUB)
    assert parsed.all("Restart") == ["always"]
    assert parsed.all("TimeoutStartSec") == [str(serving(HUB).startup_s)]
    assert parsed.all("StandardOutput") == parsed.all("StandardError") == ["journal"]
    assert (unit(CPU).all("PrivateDevices"), parsed.all("PrivateDevices")) == (["yes"], [])


class Engine(BaseHTTPRequestHandler):
    """Healthy at the third question; keeps the request that it was warmed with."""

    health = 0
    requests: tuple[tuple[str, str | None], ...] = ()

    def do_GET(self) -> None:
        type(self).health += 1
        self.send_response(200 if type(self).health >= 3 else 503)
        self.end_headers()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        type(self).requests += ((body, self.headers["Authorization"]),)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Be quiet."""


@pytest.fixture
def engine() -> type[Engine]:
    return type("OneEngine", (Engine,), {})


def warm_up(sample: Recommendation, port: int, pid: int, **more: str) -> subprocess.CompletedProcess[str]:
    parsed = unit(sample)
    environment = parsed.environment(SPECIFIERS) | {"SERVE_PORT": str(port)} | more
    command = parsed.command("ExecStartPost", environment, SPECIFIERS)
    environment |= {"MAINPID": str(pid), "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30)


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on this machine")
@pytest.mark.parametrize("key", [None, "k 1"])
def test_the_unit_waits_for_health_and_sends_one_request(engine: type[Engine], key: str | None) -> None:
    server = HTTPServer(("127.0.0.1", 0), engine)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        done = warm_up(FOLDER, server.server_port, process.pid, **({"VLLM_API_KEY": key} if key else {}))
    finally:
        process.kill()
        process.wait()
        server.shutdown()
    assert done.returncode == 0, done.stderr
    assert engine.health == 3
    ((body, authorization),) = engine.requests
    assert '"model": "o\'brien\'s model"' in body
    assert authorization == (f"Bearer {key}" if key else None)


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on this machine")
def test_the_unit_does_not_wait_for_an_engine_that_died() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert warm_up(replace(FOLDER, boot_s=1.0), port, process.pid).returncode != 0
