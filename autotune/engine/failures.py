"""Why an engine failed: one value that the tuner, the store and ``autotune explain`` share.

A failure belongs to a class (``failure_classes``), carries the log line that proves it, the boot phase it
struck in and, where vLLM prints numbers, by how much the configuration missed. The verdict is reached in
this order:

    1. the first known cause in the log, if nobody had asked the engine to stop before it
    2. a stop that was asked for (by us, or by somebody else)
    3. a signal: the exit status of the server, or of the worker that the log reports dead; SIGKILL means
       ``host_oom`` only where the kernel's counter says so, for it proves nothing by itself
    4. a failure without a known cause: the first unknown exception, else that the engine died
    5. an exit that nobody asked for, with exit code 0 as well
    6. no failure
"""

import re
import signal
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.engine.causes import Cause, CauseFinder, seconds_between
from autotune.engine.failure_classes import CLASSES, Consequence, FailureClass
from autotune.engine.log_lines import LogLine, read_lines
from autotune.engine.logs import BootFacts, BootPhase, BootReader
from autotune.engine.margins import (
    Margin,
    MarginBytes,
    MarginTokens,
    batch_margin,
    host_kv_margin,
    host_total_bytes,
    kv_margin,
    length_margin,
    startup_margin,
)
from autotune.engine.oom import oom_class, oom_margin
from autotune.engine.patterns import OOM

__all__ = ["Diagnosis", "Failure", "Margin", "MarginBytes", "MarginTokens", "classify", "diagnose"]

_MAX_LINE_CHARS = 600
_TOKEN = re.compile(r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,})|(?<=Bearer )\S{8,}")
# A stop that we ask for and the first deaths that it causes may be logged in the wrong order.
_STOP_GRACE_S = 2.0


@dataclass(frozen=True, slots=True)
class Failure:
    """One engine failure with its evidence; picklable, so it travels from the engine to the store.

    ``line`` and ``line_number`` (1-based) are the first cause in the log, None where the log is silent
    and the exit status, a deadline or a probe is the evidence.
    """

    cls: FailureClass
    consequence: Consequence
    phase: BootPhase | None = None
    line: str | None = None
    line_number: int | None = None
    process: str | None = None
    margin: Margin | None = None
    exit_code: int | None = None
    advice: str = ""

    @classmethod
    def of(
        cls,
        name: str,
        *,
        phase: BootPhase | None = None,
        line: str | None = None,
        line_number: int | None = None,
        process: str | None = None,
        margin: Margin | None = None,
        exit_code: int | None = None,
        consequence: Consequence | None = None,
    ) -> "Failure":
        """A failure of the named class, with the consequence and advice of its class unless overridden."""
        kind = CLASSES[name]
        return cls(
            kind, consequence or kind.consequence, phase, line, line_number, process, margin, exit_code, kind.what_to_do
        )

    @property
    def teaches(self) -> bool:
        """Whether the configuration caused it, so that the sampler may learn from it."""
        return self.consequence is Consequence.TEACHES or (
            self.consequence is Consequence.PRUNES_VALUE and self.cls.teaches
        )

    def __str__(self) -> str:
        """One or two lines for a person: what happened, where, the evidence, what to do."""
        where = f" (phase: {self.phase})" if self.phase else ""
        numbers = f" [{self.margin}]" if self.margin else ""
        evidence = f": {self.line}" if self.line else ""
        return f"{self.cls.summary}{where}{numbers}{evidence}\n{self.advice}."


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What one log says: the failure (None: there is none) and the facts of the boot."""

    failure: Failure | None
    facts: BootFacts


@dataclass(frozen=True, slots=True)
class _Circumstances:
    """What is known beside the log; see ``classify``."""

    exit_code: int | None
    stop_requested: bool | None
    oom_kills: int | None
    baseline_free_bytes: int | None


def classify(
    log: Path | Iterable[bytes],
    *,
    exit_code: int | None = None,
    stop_requested: bool | None = None,
    oom_kills: int | None = None,
    baseline_free_bytes: int | None = None,
) -> Failure | None:
    """The failure that a vLLM log shows, or None where there is none.

    ``exit_code`` is that of the server process (negative or 128 + n for a signal; None while it runs or
    when unknown). ``stop_requested`` says whether we asked it to stop (None: unknown, trust the log).
    ``oom_kills`` is how often the cgroup's kill counter rose meanwhile. ``baseline_free_bytes`` is the
    device memory that was free before anything of ours started: it tells a budget that can never fit
    from a leftover process, and a configuration that needs too much from a neighbour that took it.
    """
    return diagnose(
        log,
        exit_code=exit_code,
        stop_requested=stop_requested,
        oom_kills=oom_kills,
        baseline_free_bytes=baseline_free_bytes,
    ).failure


def diagnose(
    log: Path | Iterable[bytes],
    *,
    exit_code: int | None = None,
    stop_requested: bool | None = None,
    oom_kills: int | None = None,
    baseline_free_bytes: int | None = None,
) -> Diagnosis:
    """Failure and boot facts in one pass; the arguments are those of ``classify``. One pass, bounded memory."""
    reader = BootReader()
    finder = CauseFinder(reader)
    for line in read_lines(log):
        reader.feed(line)
        finder.feed(line)
    finder.close()
    around = _Circumstances(exit_code, stop_requested, oom_kills, baseline_free_bytes)
    failure = _verdict(reader, finder, around)
    return Diagnosis(replace(failure, exit_code=exit_code) if failure else None, reader.facts())


def _verdict(reader: BootReader, finder: CauseFinder, around: _Circumstances) -> Failure | None:
    if finder.known and (_has_failed(reader, finder, around) or not reader.ready):
        return _from_cause(finder.known, reader, around)
    if stop := _stop(finder, around):
        return replace(stop, phase=reader.phase)
    if killed := _from_signal(reader, finder, around):
        return killed
    if _has_failed(reader, finder, around):
        return _without_known_cause(reader, finder, around)
    return None


def _has_failed(reader: BootReader, finder: CauseFinder, around: _Circumstances) -> bool:
    ended = around.exit_code is not None and around.stop_requested is not True
    boot_broke_off = finder.unknown is not None and not reader.ready
    return finder.fatal is not None or finder.known is not None or boot_broke_off or ended


def _stop(finder: CauseFinder, around: _Circumstances) -> Failure | None:
    line = finder.stop_line
    died_before = finder.fatal is not None and not _within_grace(finder.fatal, line)
    if around.stop_requested is True:
        return None if died_before else _at("stopped_by_us", line)
    if died_before:
        return None
    asked = line is not None or _signal_of(around.exit_code) in (signal.SIGTERM, signal.SIGINT)
    if not asked:
        return None
    return _at("stopped_by_us" if around.stop_requested is None else "stopped_by_other", line)


def _within_grace(fatal: Cause, stop: LogLine | None) -> bool:
    if stop is None:
        return False
    seconds = seconds_between(fatal.line, stop)
    return seconds is not None and abs(seconds) <= _STOP_GRACE_S


def _at(name: str, line: LogLine | None) -> Failure:
    if line is None:
        return Failure.of(name)
    return Failure.of(name, line=_public(line.text), line_number=line.number, process=line.process)


def _public(text: str) -> str:
    """The evidence as it may be stored and shown: not too long, and without access tokens."""
    return _TOKEN.sub("***", text.strip())[:_MAX_LINE_CHARS]


def _signal_of(status: int | None) -> int | None:
    if status is None or status == 0:
        return None
    if status < 0:
        return -status
    return status - 128 if 128 < status < 128 + 65 else None


# What a signal that we did not send says about the process that it ended.
_SIGNAL_CLASSES = {
    signal.SIGKILL: "killed",
    signal.SIGBUS: "shm",
    signal.SIGSEGV: "crashed",
    signal.SIGABRT: "crashed",
    signal.SIGILL: "crashed",
    signal.SIGFPE: "crashed",
}


def _from_signal(reader: BootReader, finder: CauseFinder, around: _Circumstances) -> Failure | None:
    if finder.unknown is not None:
        return None
    name = _SIGNAL_CLASSES.get(signal.Signals(number)) if (number := _deadly(finder, around)) else None
    if name is None:
        return None
    evidence = finder.fatal.line if finder.fatal else None
    failure = _at("host_oom" if name == "killed" and around.oom_kills else name, evidence)
    return replace(failure, phase=finder.fatal.phase if finder.fatal else reader.phase)


def _deadly(finder: CauseFinder, around: _Circumstances) -> int | None:
    """The signal that ended the server, or the child that its log reports; a status of None was SIGKILL."""
    own = _signal_of(around.exit_code)
    status = finder.exit_status
    child = signal.SIGKILL if status == "None" else _signal_of(int(status)) if status else None
    number = own or child
    return number if number in _SIGNAL_CLASSES else None


def _without_known_cause(reader: BootReader, finder: CauseFinder, around: _Circumstances) -> Failure:
    if finder.hint is not None:
        return _from_cause(finder.hint, reader, around)
    if finder.unknown is not None:
        return replace(_at("unknown", finder.unknown.line), phase=finder.unknown.phase)
    if finder.fatal is not None:
        return replace(
            _at("host_oom" if around.oom_kills else "engine_died", finder.fatal.line), phase=finder.fatal.phase
        )
    return Failure.of("host_oom" if around.oom_kills else "exited", phase=reader.phase)


def _from_cause(cause: Cause, reader: BootReader, around: _Circumstances) -> Failure:
    name = cause.cls or "unknown"
    if name == OOM:
        name = oom_class(cause, ready=reader.ready, eager=reader.eager, baseline_free_bytes=around.baseline_free_bytes)
    if name == "killed" and around.oom_kills:
        name = "host_oom"
    margin = _margin(name, cause.message, reader)
    if name == "host_memory_kv" and isinstance(margin, MarginBytes) and margin.needed <= 0:
        # The budget was used up before the KV cache: the amount that is asked for comes out negative.
        name, margin = "kv_cache_none", MarginBytes(0, margin.needed)
    return Failure.of(
        name,
        phase=cause.phase,
        line=_public(cause.line.text),
        line_number=cause.line.number,
        process=cause.line.process,
        margin=margin,
        consequence=_consequence(name, cause.message, margin, around),
    )


def _margin(name: str, message: str, reader: BootReader) -> Margin | None:
    if name.startswith("oom_"):
        return oom_margin(message)
    if name == "kv_cache_none":
        left = reader.facts().available_kv_bytes
        return MarginBytes(0, left) if left is not None else None
    parse = {
        "kv_cache_too_small": kv_margin,
        "not_enough_free_memory": startup_margin,
        "host_memory_kv": host_kv_margin,
        "length_beyond_model": length_margin,
        "invalid_combination": batch_margin,
    }.get(name)
    return parse(message) if parse else None


def _consequence(name: str, message: str, margin: Margin | None, around: _Circumstances) -> Consequence | None:
    """TEACHES where the numbers prove that the configuration could not fit an empty machine either."""
    if name == "host_memory_kv" and margin:
        total = host_total_bytes(message) or 0
        return Consequence.TEACHES if margin.needed > total else None
    if name == "not_enough_free_memory" and margin and around.baseline_free_bytes is not None:
        return Consequence.TEACHES if margin.needed > around.baseline_free_bytes else None
    return None
