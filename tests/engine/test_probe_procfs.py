"""Who listens, what a server answers, what a growing log says: with real sockets, processes and files."""

import contextlib
import http.server
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.engine import probe, procfs
from autotune.engine.log_tail import LogTail, set_aside
from autotune.engine.probe import ProbeError, WrongModel

ME = [os.getpid()]


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_a_listener_is_ours_only_with_our_process(address: str) -> None:
    with socket.socket() as server:
        server.bind((address, 0))
        port = server.getsockname()[1]
        assert probe.listener(port, lambda: ME) == "nobody"
        server.listen()
        assert probe.listener(port, lambda: ME) == "ours"
        assert probe.listener(port, list) == "foreign"
    assert probe.listener(port, lambda: ME) == "nobody"


def test_a_listener_on_ipv6_reaches_loopback_too() -> None:
    with socket.socket(socket.AF_INET6) as server:
        server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        server.bind(("::", 0))
        server.listen()
        assert probe.listener(server.getsockname()[1], lambda: ME) == "ours"


def test_a_shared_port_is_foreign_even_if_one_of_the_sockets_is_ours() -> None:
    with socket.socket() as ours, socket.socket() as other:
        for server in (ours, other):
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        ours.bind(("127.0.0.1", 0))
        port = ours.getsockname()[1]
        ours.listen()
        pid = os.fork()
        if pid == 0:
            ours.close()
            other.bind(("127.0.0.1", port))
            other.listen()
            time.sleep(30)
            os._exit(0)
        other.close()
        try:
            while len(procfs.listening_inodes(port) or ()) < 2:
                time.sleep(0.01)
            assert probe.listener(port, lambda: ME) == "foreign"
            assert probe.listener(port, lambda: [*ME, pid]) == "ours"
        finally:
            os.kill(pid, 9)
            os.waitpid(pid, 0)


def test_a_process_is_named_by_pid_and_start_and_a_zombie_runs_no_more() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    while (stat := procfs.read_stat(pid)) is not None and stat.running:
        time.sleep(0.01)
    assert stat is not None and stat.state == "Z" and not procfs.alive(stat.id)
    os.waitpid(pid, 0)
    assert procfs.read_stat(pid) is None
    me = procfs.read_stat(os.getpid())
    assert me is not None and procfs.alive(me.id) and me.sid == os.getsid(0)


def test_a_name_with_brackets_and_spaces_is_read() -> None:
    before = Path("/proc/self/comm").read_text()
    try:
        Path("/proc/self/comm").write_text("a) R 1 (b")
        stat = procfs.read_stat(os.getpid())
        assert stat is not None and stat.name == "a) R 1 (b" and stat.ppid == os.getppid()
    finally:
        Path("/proc/self/comm").write_text(before.strip())


class Talker(http.server.BaseHTTPRequestHandler):
    """Answers as the path says."""

    def do_GET(self) -> None:
        if self.path == "/slow":
            time.sleep(1.5)
        status = 503 if self.path == "/health" and self.server.server_port in UNHEALTHY else 200
        self.send_response(status)
        self.end_headers()
        with contextlib.suppress(BrokenPipeError):
            self.wfile.write(b'{"data": [{"id": "m-1"}]}')

    def log_message(self, *args: object) -> None:
        """Say nothing."""


UNHEALTHY: set[int] = set()


@pytest.fixture
def port() -> Iterator[int]:
    """A server of this process."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Talker)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def test_health_needs_status_and_name(port: int) -> None:
    assert probe.healthy(port, "m-1")
    with pytest.raises(WrongModel, match="'m-1' instead of 'm-2'"):
        probe.healthy(port, "m-2")
    UNHEALTHY.add(port)
    assert not probe.healthy(port, "m-1")
    UNHEALTHY.clear()


def test_a_wait_for_an_answer_can_be_broken_off(port: int) -> None:
    def enough() -> None:
        raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        probe.ask(port, "/slow", keep_waiting=enough)
    assert time.monotonic() - began < 1.0
    with pytest.raises(ProbeError, match="no answer within"):
        probe.ask(port, "/slow", limit_s=0.5)


def test_nobody_there_is_a_probe_error() -> None:
    with pytest.raises(ProbeError):
        probe.ask(probe.free_port(), "/health")


def test_the_tail_gives_each_line_once_and_whole(tmp_path: Path) -> None:
    log = tmp_path / "log"
    tail = LogTail(log)
    assert tail.read() == []
    with log.open("ab", buffering=0) as file:
        file.write(b"one\ntw")
        assert tail.read() == [b"one"]
        file.write(b"o\n\nbar 1%\rbar 2%\r")
        assert tail.read() == [b"two", b"bar 1%", b"bar 2%"]
    assert tail.read() == []


def test_setting_aside_never_overwrites(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    assert set_aside(log, "earlier") is None
    for text in ("a", "b"):
        log.write_text(text)
        set_aside(log, "earlier")
    assert [(tmp_path / f"engine.earlier{i}.log").read_text() for i in (1, 2)] == ["a", "b"]
    assert not log.exists()
