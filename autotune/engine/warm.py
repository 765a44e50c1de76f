"""Warm boots: engines forked from a process that has imported vLLM already.

Importing vLLM takes 8-20 s in every process of an engine and is the larger part of a hot boot. A
``WarmServer`` keeps one process in vLLM's Python (``_warm_server.py``) that has paid this once and forks for
every engine. What runs is the same code with the same process tree, log and exit codes. What differs is
checked, and where it matters the boot falls back to a plain one by raising ``WarmUnavailable``:

    environment   must equal the warm server's own, because libraries read it while they are imported
    device        must be untouched before the fork
    API servers   several of them are started by vLLM as processes of their own and do not come up behind a fork
    trust         after a warm boot failed where a plain one did not, no other is tried

The two talk over a socket pair that nobody else can open; when the tuner dies, the other end reads end of
file and kills all engines that it started. What is exported must be confirmed by a plain boot.
"""

import json
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from autotune.engine import procfs
from autotune.engine.environment import engine_environment, serve_arguments, without_mark
from autotune.engine.process import SERVER_MARK, Family, start
from autotune.engine.procfs import ProcessId
from autotune.engine.types import EngineSpec

IMPORT_LIMIT_S = 300.0
ANSWER_LIMIT_S = 20.0
CLOSE_LIMIT_S = 5.0
SEVERAL_SERVERS = ("api-server-count", "data-parallel-size")
LOST_EXIT_CODE = -int(signal.SIGKILL)
RUN_FILE = (
    "import runpy, sys; sys.path[:] = [p for p in sys.path if p]; runpy.run_path(sys.argv.pop(1), run_name='__main__')"
)


class WarmUnavailable(Exception):
    """No warm boot can be had; the text says why. A plain one can."""


def wait_on() -> None:
    """Wait without asking anyone."""


class WarmServer:
    """Forks engines that fit ``spec``: its installation and its environment. Starts importing at once.

    ``log_path`` gets the server's own output. Close it (or use it as a context manager) when no more engines
    are to be started; running engines are not touched by that.
    """

    def __init__(self, spec: EngineSpec, log_path: Path) -> None:
        self._env = engine_environment(spec, SERVER_MARK)
        self._python = spec.install.python
        self._lock = threading.Lock()
        self._rest = b""
        self._broken: str | None = None
        self.imports_s: float | None = None
        self._channel, theirs = socket.socketpair()
        with theirs:
            script = str(Path(__file__).with_name("_warm_server.py"))
            argv = [str(self._python), "-c", RUN_FILE, script, str(theirs.fileno())]
            child = start(argv, env=self._env, log_path=log_path, pass_fds=(theirs.fileno(),))
        self._family = Family(child, spec.run_id, SERVER_MARK)

    @property
    def pid(self) -> int:
        """The server's process number."""
        return self._family.leader.id.pid

    @property
    def broken(self) -> str | None:
        """Why no warm boot is possible any more, or None."""
        return self._broken

    def distrust(self, reason: str) -> None:
        """Try no further warm boots."""
        self._broken = self._broken or reason

    def wait_ready(self, keep_waiting: Callable[[], None] = wait_on) -> None:
        """Block until vLLM is imported. ``keep_waiting`` is called five times a second and may raise."""
        with self._lock:
            if self._broken is None and self.imports_s is None:
                hello = self._receive(IMPORT_LIMIT_S, keep_waiting)
                self.imports_s = float(hello["imports_s"])
                self._broken = hello["problem"]
        if self._broken is not None:
            raise WarmUnavailable(self._broken)

    def start(
        self, spec: EngineSpec, engine_id: str, port: int, keep_waiting: Callable[[], None] = wait_on
    ) -> "WarmChild":
        """Fork the engine of ``spec``. Raises ``WarmUnavailable``."""
        if spec.command or spec.install.python != self._python:
            raise WarmUnavailable("the engine is started by another program than the warm server's")
        for flag in SEVERAL_SERVERS:
            count = spec.launch().get(flag)
            if isinstance(count, int) and count > 1:
                raise WarmUnavailable(f"--{flag} {count} starts several API servers")
        env = engine_environment(spec, engine_id)
        if names := sorted(_differing(without_mark(env), without_mark(self._env))):
            raise WarmUnavailable(f"the environment differs in {', '.join(names)}")
        self.wait_ready(keep_waiting)
        spec.log_path.parent.mkdir(parents=True, exist_ok=True)
        argv, log = serve_arguments(spec, engine_id, port), str(spec.log_path.absolute())
        answer = self._ask({"op": "start", "argv": argv, "mark": engine_id, "log": log}, keep_waiting)
        if "error" in answer:
            raise WarmUnavailable(answer["error"])
        stat = procfs.read_stat(answer["pid"])
        return WarmChild(self, stat.id if stat else ProcessId(answer["pid"], 0))

    def exit_code(self, pid: int, *, release: bool = False) -> int | None:
        """The exit code of an engine's leader, None while it runs. Raises ``WarmUnavailable`` if nobody can
        tell.
        """
        answer = self._ask({"op": "release" if release else "poll", "pid": pid})
        if "error" in answer:
            raise WarmUnavailable(answer["error"])
        code: int | None = answer["code"]
        return code

    def close(self) -> None:
        """End the server. Engines that still run are ended by it, as after the tuner's death."""
        self.distrust("the warm server is closed")
        with suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)
        self._channel.close()
        deadline = time.monotonic() + CLOSE_LIMIT_S
        # It ends its engines before itself: a signal now would come between.
        while self._family.leader.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        self._family.stop(grace_s=2.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, request: Mapping[str, Any], keep_waiting: Callable[[], None] = wait_on) -> dict[str, Any]:
        with self._lock:
            try:
                self._channel.sendall(json.dumps(request).encode() + b"\n")
            except OSError as error:
                raise self._lost(error) from error
            return self._receive(ANSWER_LIMIT_S, keep_waiting)

    def _receive(self, limit_s: float, keep_waiting: Callable[[], None]) -> dict[str, Any]:
        """One line. Whatever ends the wait early leaves an answer outstanding, so no other may follow."""
        deadline = time.monotonic() + limit_s
        try:
            self._channel.settimeout(0.2)
            while b"\n" not in self._rest:
                self._wait_for_more(deadline, keep_waiting)
        except OSError as error:
            raise self._lost(error) from error
        except BaseException:
            self.distrust("an answer was not waited for")
            raise
        line, _, self._rest = self._rest.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _wait_for_more(self, deadline: float, keep_waiting: Callable[[], None]) -> None:
        try:
            data = self._channel.recv(65536)
        except TimeoutError:
            keep_waiting()
            if time.monotonic() > deadline:
                raise ConnectionError("no answer in time") from None
            return
        if not data:
            raise ConnectionError("it ended")
        self._rest += data

    def _lost(self, error: Exception) -> WarmUnavailable:
        self.distrust(f"the warm server is lost: {error}")
        return WarmUnavailable(self._broken)


def _differing(one: Mapping[str, str], other: Mapping[str, str]) -> set[str]:
    return {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}


class WarmChild:
    """An engine's leader whose parent is the warm server."""

    def __init__(self, server: WarmServer, process: ProcessId) -> None:
        self._server = server
        self._id = process
        self._code: int | None = None

    @property
    def id(self) -> ProcessId:
        """Pid and start time."""
        return self._id

    def poll(self) -> int | None:
        """The exit code. Without the warm server it is unknown, and told as a kill, as its own end was."""
        if self._code is None:
            try:
                self._code = self._server.exit_code(self._id.pid)
            except WarmUnavailable:
                self._code = None if procfs.alive(self._id) else LOST_EXIT_CODE
        return self._code

    def release(self) -> None:
        """Have the warm server wait for it, which frees its pid."""
        with suppress(WarmUnavailable):
            self._server.exit_code(self._id.pid, release=True)
