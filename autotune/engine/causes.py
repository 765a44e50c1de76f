"""Finds the first cause of a failure in a log's lines, and tells causes from their consequences.

An engine that dies is reported several times: the worker raises, the engine core reports the worker, the
API server reports the engine core, and torch and NCCL complain while everything is torn down. So

    1. evidence is gathered in *blocks*: an exception's message with its continuation lines, a line logged
       as an error, or a line of argparse, a compiler, NCCL, the shell. Blocks are kept per process,
       because processes interleave. The frames of the traceback in front are remembered.
    2. a block that only reports somebody else's failure is a *consequence*: it proves that there was a
       failure and is never its cause.
    3. every other block is looked up in ``engine/patterns``. The earliest known block is the cause; the
       earliest unknown exception is kept for when nothing is known.
    4. nothing after the first sign of a requested stop counts. What a boot survived is forgotten: evidence
       without a fatal consequence is dropped when the boot goes on to a later phase, all of it when the
       server is ready. Errors of single requests are no evidence against the engine.
"""

import re
from collections import deque
from dataclasses import dataclass, field

from autotune.engine.log_lines import LogLine
from autotune.engine.logs import BootPhase, BootReader, clock_s
from autotune.engine.patterns import HINTS, OOM, PATTERNS

_MAX_BLOCK_LINES = 16
_MAX_REACH = 100
_MAX_FRAMES = 200
_MAX_MESSAGE = 8_192
_MAX_STREAMS = 256

_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r'\s*File "([^"]+)", line \d+, in (\S+)')
_RAISED = re.compile(r"[A-Za-z_][\w.]*(?::|$)")
# Outside a traceback an exception is known by its name.
_EXCEPTION = re.compile(
    r"(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Unsupported|Timeout|Expired|OutOfResources)|Exception)"
    r"(?:: |:$|$)"
)
_FIELD = re.compile(r"[a-z_][\w.]*")
_BARE = re.compile(
    r"[\w./ \[\]-]{1,80}: error: |\S+:\d+:\d+ \[\d+\] (?:\S+ )?NCCL WARN |NCCL WARN |/bin/sh: |sh: \d+: |ninja: "
    r"|Bus error|Segmentation fault|Illegal instruction|Fatal Python error|terminate called|  what\(\):  |FAILED: "
    r"|\S*fatal error: |gcc: |nvcc |c\+\+: |error: |OCI runtime |(?:\[ *[\d.]+\] )?NVRM: Xid|CUDA error: "
    r"|ImportError|OSError|Memory access fault|Failed: Cuda error |Killed$|\S*: ?line \d+: +\d+ (?:Killed|Aborted)"
    r"|!!!!!!! Segfault|(?:\[ *[\d.]+\] )?(?:Memory cgroup out of memory|Out of memory: Kill|oom-kill:)"
    r"|\S*\(\): |double free|corrupted |Aborted \(core|.*\bOOMKilled\b"
)
_COMPILER = re.compile(r"\S+:\d+(?::\d+)?: (?:fatal )?error: ")

_CONSEQUENCE = re.compile(
    "|".join(
        (
            "Engine core initialization failed",
            "Engine process failed to start",
            "EngineCore failed to start",
            "EngineCore encountered a(?:n issue| fatal error)",
            "EngineCore hit an exception",
            "EngineCore died",
            "EngineDeadError",
            r"Engine process \(pid \d+\) died",
            "Error executing method",
            "Engine background task failed",
            "Engine loop (?:is not running|has died)",
            "engine core exited unexpectedly",
            "AsyncLLM output_handler failed",
            "Background loop (?:has errored|is stopped)",
            "MQLLMEngine is already dead",
            "MQEngineDeadError",
            "WorkerProc (?:failed|hit an exception|initialization failed)",
            r"Worker \w+ pid \d+ died",
            "VllmWorkerProcess.* died",
            "Exception in worker",
            "RayWorkerProc failed",
            "(?:Ray)?ActorDiedError",
            "Executor failed",
            "died unexpectedly",
            "Failed core proc",
            "Frontend process failed",
            "Application startup failed",
            "terminating server process",
            "please check the stack trace above for the root cause",
        )
    )
)
# Of those, the ones that only an engine which had been serving gives.
_WAS_SERVING = re.compile("output_handler failed|encountered a(?:n issue| fatal error)|Engine background task failed")
# Reports of a failure that carry nothing of their own; "Worker failed with error '...'" quotes the cause.
_NO_CAUSE = re.compile(
    r"cancelled$|^RuntimeError: cancelled|CancelledError|SystemExit|GeneratorExit|BrokenPipeError|ConnectionResetError"
    r"|EOFError$|destroy_process_group|resource_tracker|leaked (?:semaphore|shared_memory)|ConnectionRefusedError"
    r"|ZMQError: (?:Context was terminated|Socket operation)|HeartbeatMonitor|TCPStore.*recvValue failed"
    r"|ERR_RemoteClose|Aborting process due to|NoneType: None"
)
# A boot that fails in code from these folders, for no reason that is known, runs a stale or broken cache.
_COMPILE_CACHE = re.compile("torch_aot_compile|torch_compile_cache|inductor_cache|standalone_compile")
# The engine's last words repeat its whole configuration, which may contain any word.
_DUMPS = "Dumping "
_REQUEST_SOURCES = re.compile(
    r"serving\w*\.py|api_router\.py|error_response\.py|protocol\.py|chat_utils\.py|preprocess\.py"
)
_ENGINE_PROCESS = re.compile(r"Engine|Worker|Ray|DPCoordinator", re.IGNORECASE)
_ENGINE_CAUSES = frozenset(
    {OOM, "oom_sampler", "gpu_fault", "gpu_lost", "nccl", "ulimit", "host_oom", "disk_full", "shm", "run_hang"}
)
# A signal from outside always says so; an interrupt is also how a dying engine's processes end each other.
_STOP = re.compile(r"\[shutdown\] API server: shutdown triggered|^Received (?:SIGTERM|SIGINT|signal)")
_INTERRUPT = re.compile(r"^KeyboardInterrupt")
_SIGNALLED = re.compile(r"trigger received signal=")
_OWN_TEARDOWN = "send sigterm to process"
_UVICORN_STOP = "Shutting down"
_EXIT_STATUS = re.compile(
    r"exit code: (-?\d+|None)|exitcode[=:] ?(-?\d+)|'EngineCore\w*': (-?\d+)|died with exit code (-?\d+)"
)


@dataclass(frozen=True, slots=True)
class Cause:
    """One piece of evidence: its class (a table's name, or None for an unknown exception) and where it is.

    ``message`` is the whole block, ``frames`` the ``file:function`` of the traceback in front of it,
    ``report`` the last thing that its process said before, such as "EngineCore failed to start."; the three
    flags say how far the boot was.
    """

    cls: str | None
    line: LogLine
    message: str
    phase: BootPhase
    frames: tuple[str, ...] = ()
    report: str = ""
    weights_done: bool = False
    kv_sized: bool = False
    graphs_done: bool = False


@dataclass(slots=True)
class _Stream:
    """What one process is in the middle of saying; ``flat`` tracebacks have lost their indentation."""

    frames: deque[str] = field(default_factory=lambda: deque(maxlen=_MAX_FRAMES))
    in_traceback: bool = False
    flat: bool = False
    block: list[LogLine] = field(default_factory=list)
    phase: BootPhase = BootPhase.IMPORTS
    report: str = ""


class CauseFinder:
    """Follows one log beside a ``BootReader`` that has seen the same lines; ``close()`` before reading it."""

    def __init__(self, reader: BootReader) -> None:
        self._reader = reader
        self._streams: dict[str | None, _Stream] = {}
        self._own_teardown = False
        self._phase = BootPhase.IMPORTS
        self.stop_line: LogLine | None = None
        self.forget()

    def forget(self) -> None:
        """Drop all evidence: what it speaks of did not keep the engine from working."""
        self.known: Cause | None = None
        self.unknown: Cause | None = None
        self.fatal: Cause | None = None
        self.hint: Cause | None = None
        self.exit_status: str | None = None

    def feed(self, line: LogLine) -> None:
        """Take one line into account; the reader must have been fed with it before."""
        self._follow_phase()
        if self.stop_line is not None:
            return
        stream = self._stream(line.process)
        if line.level in ("INFO", "WARNING", "DEBUG"):
            self._take_remark(line)
        else:
            self._take_evidence(stream, line)

    def close(self) -> None:
        """Judge everything that was said so far; to be called where the log ends."""
        for stream in self._streams.values():
            self._flush(stream)

    def _follow_phase(self) -> None:
        before, self._phase = self._phase, self._reader.phase
        if self._phase is before:
            return
        if self._phase.rank < before.rank:
            self._begin_again()
        elif self._phase.rank <= BootPhase.READY.rank:
            self.close()
            if self.fatal is None or self._phase is BootPhase.READY:
                self.forget()

    def _begin_again(self) -> None:
        """Another boot in the same log, after one that had come up."""
        self._streams.clear()
        self._own_teardown = False
        self.stop_line = None
        self.forget()

    def _stream(self, process: str | None) -> _Stream:
        if process not in self._streams:
            if len(self._streams) >= _MAX_STREAMS:
                self._flush(self._streams.pop(next(iter(self._streams))))
            self._streams[process] = _Stream()
        return self._streams[process]

    def _take_remark(self, line: LogLine) -> None:
        text = line.text
        if "hut" in text or "signal" in text:
            self._take_word_of_a_stop(line)
        elif line.level == "WARNING" and self.hint is None:
            lowered = text.lower()
            name = next((row.cls for row in HINTS if row.find(text, lowered) >= 0), None)
            if name:
                self.hint = Cause(name, line, text, self._reader.phase)

    def _take_word_of_a_stop(self, line: LogLine) -> None:
        self.close()  # what was being said before counts as said before
        if _OWN_TEARDOWN in line.text:
            self._own_teardown = True
        if self._is_stop(line):
            self.stop_line = line
        elif "exited unexpectedly" in line.text:
            self._take_consequence(line, line.text, self._reader.phase)

    def _is_stop(self, line: LogLine) -> bool:
        text = line.text
        if text == _UVICORN_STOP or "Shutting down FastAPI" in text:
            return self.fatal is None and self.known is None
        if _SIGNALLED.search(text):
            return not self._own_teardown
        return _STOP.search(text) is not None

    def _take_evidence(self, stream: _Stream, line: LogLine) -> None:
        text = line.text
        if text.endswith(_TRACEBACK):
            self._begin_traceback(stream, line)
        elif stream.in_traceback:
            self._take_frame(stream, line)
        elif stream.block and self._continues(stream, line):
            stream.block.append(line)
        else:
            self._flush(stream)
            if self._is_evidence(line):
                self._open(stream, line)

    def _begin_traceback(self, stream: _Stream, line: LogLine) -> None:
        """Where the words in front of it end a message, they belong to that; else they are one."""
        if report := line.text[: -len(_TRACEBACK)].strip(" :,"):
            if stream.block and self._continues(stream, line):
                stream.block.append(line)
            else:
                self._flush(stream)
                self._open(stream, line._replace(text=report))
        self._flush(stream)
        if report:
            stream.report = report
        stream.in_traceback, stream.flat = True, False
        stream.frames.clear()

    def _take_frame(self, stream: _Stream, line: LogLine) -> None:
        text = line.text
        if match := _FRAME.match(text):
            stream.frames.append(f"{match[1]}:{match[2]}")
            stream.flat = stream.flat or text[0] != " "
        elif not text or text[0] in " |+^" or (stream.flat and not _EXCEPTION.match(text)):
            return
        else:
            stream.in_traceback = False
            if _RAISED.match(text) or self._is_evidence(line):
                self._open(stream, line)

    def _open(self, stream: _Stream, line: LogLine) -> None:
        stream.block = [line]
        stream.phase = self._reader.phase

    @staticmethod
    def _continues(stream: _Stream, line: LogLine) -> bool:
        text = line.text
        first = stream.block[0]
        if (
            len(stream.block) >= _MAX_BLOCK_LINES
            or line.level != first.level
            or line.number > first.number + _MAX_REACH
        ):
            return False
        return not (
            _EXCEPTION.match(text) or text.startswith(("Process ", "During handling", "The above exc", "usage:"))
        )

    @staticmethod
    def _is_evidence(line: LogLine) -> bool:
        text = line.text
        return (
            line.level in ("ERROR", "CRITICAL")
            or _EXCEPTION.match(text) is not None
            or _BARE.match(text) is not None
            or _COMPILER.match(text) is not None
        )

    def _flush(self, stream: _Stream) -> None:
        if stream.block:
            block, stream.block = stream.block, []
            self._judge(stream, block)

    def _judge(self, stream: _Stream, block: list[LogLine]) -> None:
        first = block[0]
        message = "\n".join(line.text for line in block)[:_MAX_MESSAGE]
        if first.text.startswith(_DUMPS):
            return
        if _INTERRUPT.search(message) and self.fatal is None:
            self.stop_line = self.stop_line or first
            return
        consequence = _CONSEQUENCE.search(message)
        if consequence:
            stream.report = first.text
            self._take_consequence(first, message, stream.phase)
        if not self._of_a_request(first, stream):
            self._look_up(stream, block, message, may_be_unknown=not consequence)

    def _take_consequence(self, line: LogLine, message: str, phase: BootPhase) -> None:
        status = _EXIT_STATUS.search(message)
        if status and self.exit_status is None:
            self.exit_status = next(group for group in status.groups() if group)
        if phase.rank < BootPhase.SERVER.rank and _WAS_SERVING.search(message):
            phase = BootPhase.SERVING  # a log whose beginning is missing
        if self.fatal is None or line.number < self.fatal.line.number:
            self.fatal = Cause(None, line, message, phase)

    def _of_a_request(self, first: LogLine, stream: _Stream) -> bool:
        up = self._reader.ready
        return (
            up and first.source is not None and _REQUEST_SOURCES.search(first.source) is not None and not stream.report
        )

    def _look_up(self, stream: _Stream, block: list[LogLine], message: str, *, may_be_unknown: bool) -> None:
        cls, at = _match(message)
        if (
            cls in (None, "compile_failed", "weights_corrupt")  # a damaged pickle may be either's
            and not self._reader.ready
            and any(map(_COMPILE_CACHE.search, stream.frames))
        ):
            cls = "cache_poisoned"
        engine_side = not self._reader.ready or bool(_ENGINE_PROCESS.match(block[0].process or ""))
        if cls and not engine_side and cls not in _ENGINE_CAUSES:
            return
        if cls is None and (
            not may_be_unknown or not engine_side or not _is_exception(block[0]) or _NO_CAUSE.search(message)
        ):
            return
        line = _evidence(block, message.count("\n", 0, max(at, 0)))
        reader = self._reader
        cause = Cause(
            cls, line, message, stream.phase, tuple(stream.frames), stream.report,
            reader.weights_done, reader.kv_sized, reader.graphs_done,
        )  # fmt: skip
        self._keep(cause)

    def _keep(self, cause: Cause) -> None:
        if cause.cls is None:
            if self.unknown is None or cause.line.number < self.unknown.line.number:
                self.unknown = cause
        elif self.known is None or cause.line.number < self.known.line.number:
            self.known = cause


def _match(message: str) -> tuple[str | None, int]:
    lowered = message.lower()
    for row in PATTERNS:
        at = row.find(message, lowered)
        if at >= 0:
            return row.cls, at
    return None, 0


def _evidence(block: list[LogLine], index: int) -> LogLine:
    """The line of a block that proves the cause; pydantic's complaint together with the field it is about."""
    line = block[min(index, len(block) - 1)]
    field = block[index - 1].text if 0 < index < len(block) else ""
    return line._replace(text=f"{field}: {line.text.strip()}") if _FIELD.fullmatch(field) else line


def _is_exception(line: LogLine) -> bool:
    return _RAISED.match(line.text) is not None and ("Error" in line.text or _EXCEPTION.match(line.text) is not None)


def seconds_between(first: LogLine, second: LogLine) -> float | None:
    """Seconds from one line to a later one by the log's clock; None where either has no time."""
    start, end = clock_s(first.time), clock_s(second.time)
    return None if start is None or end is None else end - start
