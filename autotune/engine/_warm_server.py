"""Runs in vLLM's Python: imports vLLM once, then forks one engine after the other.

Started by ``warm.py``, which holds the other end of a socket pair (file descriptor ``sys.argv[1]``). Each
line on it is a JSON request, answered by one JSON line:

    {"op": "start", "argv": [...], "mark": "...", "log": "..."}   {"pid": N} or {"error": "..."}
    {"op": "poll", "pid": N}                                      {"code": null, or the exit code}
    {"op": "release", "pid": N}                                   {"code": ...}; the pid may be used again

End of file means that the tuner is gone: every engine is killed, and this process ends.

A forked engine is what ``vllm serve`` is: leader of its own session, its output in its own log, ``vllm``'s
command line in ``sys.argv``. It saves the imports, and so do the processes that it starts in turn, because
"spawn" means "fork" there as long as no GPU was touched. This process touches none, and refuses to fork when
something did. The standard library and vLLM are all that may be imported here.
"""

import ctypes
import gc
import importlib
import json
import multiprocessing.context
import os
import pkgutil
import random
import signal
import socket
import sys
import threading
import time
from typing import Any

ENGINE_MARK = "AUTOTUNE_ENGINE"
OMP_THREADS = "OMP_NUM_THREADS"
CUDA_NOT_INITIALIZED = 3


def import_vllm() -> float:
    """Import what a boot would import, without touching a device; seconds taken."""
    began = time.monotonic()
    commands = importlib.import_module("vllm.entrypoints.cli")
    # The command line imports all its commands, whichever is used.
    for module in pkgutil.walk_packages(commands.__path__, f"{commands.__name__}."):
        try_import(module.name)
    try_import("vllm.entrypoints.openai.api_server")
    try_import("vllm.v1.engine.core")
    if (platforms := try_import("vllm.platforms")) is not None:
        on_gpu = platforms.current_platform.is_cuda_alike()
        try_import("vllm.v1.worker.gpu_worker" if on_gpu else "vllm.v1.worker.cpu_worker")
    return time.monotonic() - began


def try_import(name: str) -> Any:
    """A module, or None: places move between versions, and the engine imports by itself what it misses."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        print(f"warm server: not imported ahead: {error}", flush=True)
        return None


def why_not_fork() -> str | None:
    """What makes a fork unsafe, or None: a device in use, or another Python thread that may hold a lock."""
    if cuda_in_use():
        return "CUDA is in use in the warm server"
    if threading.active_count() > 1:
        return f"the warm server has {threading.active_count()} threads"
    return None


def cuda_in_use() -> bool:
    """Whether this process has initialised CUDA: a fork of it could not use the GPU.

    Asks torch, and the driver, which anybody may have initialised: it answers "not initialised" (3) before that. The
    driver is not loaded for the question. Open device files tell nothing, since NVML opens the same ones.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return True
    with open("/proc/self/maps", errors="replace") as maps:
        if not any("/libcuda.so" in line for line in maps):
            return False
    context = ctypes.c_void_p()
    return bool(ctypes.CDLL("libcuda.so.1").cuCtxGetCurrent(ctypes.byref(context)) != CUDA_NOT_INITIALIZED)


class Server:
    """Answers requests until the tuner is gone, or until this process is a forked engine."""

    def __init__(self, channel: socket.socket, threads_were_set: bool) -> None:
        self._channel = channel
        self._threads_were_set = threads_were_set
        self._leaders: set[int] = set()

    def tell(self, answer: dict[str, Any]) -> None:
        """Send one line to the tuner."""
        self._channel.sendall(json.dumps(answer).encode() + b"\n")

    def serve(self) -> list[str] | None:
        """The arguments to run vLLM with, in an engine; None in the server itself, when it shall end."""
        try:
            with self._channel.makefile("rb") as requests:
                for line in requests:
                    request = json.loads(line)
                    if request["op"] != "start":
                        self.tell(self._look_after(request))
                    elif self._start(request):
                        arguments: list[str] = request["argv"]
                        return arguments
        except ConnectionError:  # the tuner died before it could read an answer
            pass
        self._end_all()
        return None

    def _look_after(self, request: dict[str, Any]) -> dict[str, Any]:
        pid, release = request["pid"], request["op"] == "release"
        if pid not in self._leaders:
            return {"code": None, "error": "unknown pid"}
        info = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | (0 if release else os.WNOWAIT))
        if info is None:
            return {"code": None}
        if release:
            self._leaders.discard(pid)
        return {"code": info.si_status if info.si_code == os.CLD_EXITED else -info.si_status}

    def _start(self, request: dict[str, Any]) -> bool:
        """Fork; True in the new engine. The tuner hears of it once the engine stands on its own feet."""
        if reason := why_not_fork():
            self.tell({"error": reason})
            return False
        ours, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(ours)
            self._become_engine(request, theirs)
            return True
        os.close(theirs)
        with os.fdopen(ours) as pipe:
            problem = pipe.read()
        if problem != "ok":
            os.waitpid(pid, 0)
            self.tell({"error": problem or "the forked process ended at once"})
        else:
            self._leaders.add(pid)
            self.tell({"pid": pid})
        return False

    def _become_engine(self, request: dict[str, Any], pipe: int) -> None:
        """Turn this fork into a process like one that was started anew."""
        try:
            os.setsid()
            self._channel.close()
            log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.close(log)
            overwrite_mark(request["mark"])
            if not self._threads_were_set:
                unset_threads()
            random.seed()
            fork_for_spawn()
            os.register_at_fork(after_in_child=let_go_of_network)
        except OSError as error:
            os.write(pipe, repr(error).encode())
            os._exit(70)
        os.write(pipe, b"ok")
        os.close(pipe)

    def _end_all(self) -> None:
        """Kill every session that was started here: nobody is left who would stop it."""
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{name}/stat", errors="replace") as file:
                    session = int(file.read().rpartition(")")[2].split()[3])
                if session in self._leaders:
                    os.kill(int(name), signal.SIGKILL)
            except OSError:
                continue


def overwrite_mark(mark: str) -> None:
    """Change our mark where /proc/PID/environ shows it, so that the engine's family can be told from others.

    A fork keeps the environment that its parent was started with. The C library hands out a pointer into that
    very memory; the new mark has the old one's length. Raises ``OSError`` where it did not work.
    """
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    place = libc.getenv(ENGINE_MARK.encode())
    if place and len(ctypes.string_at(place)) == len(mark):
        ctypes.memmove(place, mark.encode(), len(mark))
    with open("/proc/self/environ", "rb") as file:
        if f"{ENGINE_MARK}={mark}".encode() not in file.read().split(b"\0"):
            raise OSError("the engine's mark cannot be set")
    os.environ[ENGINE_MARK] = mark


def unset_threads() -> None:
    """Undo the single thread that kept the imports free of thread pools."""
    del os.environ[OMP_THREADS]
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(len(os.sched_getaffinity(0)))


def fork_for_spawn() -> None:
    """Give processes that vLLM wants spawned the imports too, unless a GPU is in use by then."""
    base = multiprocessing.context.BaseContext
    original = base.get_context

    def get_context(self: Any, method: str | None = None) -> Any:
        if method == "spawn" and not cuda_in_use():
            method = "fork"
        return original(self, method)

    base.get_context = get_context  # type: ignore[method-assign]


def let_go_of_network() -> None:
    """Replace inherited network sockets, which a spawned process would not have, with /dev/null.

    Else the engine process would keep the API server's port open after that server's death.
    """
    null = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(name))) as inherited:
                on_network = inherited.family in (socket.AF_INET, socket.AF_INET6)
        except OSError:  # not a socket, or closed meanwhile
            continue
        if on_network:
            os.dup2(null, int(name))
    os.close(null)


def main() -> None:
    """Import, say so, serve; in a forked engine, run vLLM until it ends."""
    threads_were_set = OMP_THREADS in os.environ
    os.environ.setdefault(OMP_THREADS, "1")
    server = Server(socket.socket(fileno=int(sys.argv[1])), threads_were_set)
    seconds = import_vllm()
    gc.collect()
    gc.freeze()
    server.tell({"imports_s": seconds, "problem": why_not_fork()})
    arguments = server.serve()
    if arguments is not None:
        sys.argv = ["vllm", *arguments]
        importlib.import_module("vllm.entrypoints.cli.main").main()


if __name__ == "__main__":
    main()
