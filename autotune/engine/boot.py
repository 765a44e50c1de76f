"""Starts an engine and waits until it is proven ready.

    gate ─▶ free port, fresh engine id ─▶ start (warm or plain) ─▶ watch ─▶ Engine
                                                                    └─▶ BootFailed, its family gone

Ready means: a listener on the port that belongs to our family, ``/health`` 200, our engine id in
``/v1/models``, and a completion of more than one token. Until then each look (20 a second) reads the log's
new lines, the leader's exit and who listens; every two seconds the family's CPU time and I/O. Any exit, code
0 included, and any hang is a failure.

A boot is repeated once, with a new port or with the compile cache moved aside, when that was the cause; all
other decisions about a failure are the caller's.
"""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from autotune.engine import probe, procfs
from autotune.engine.deadlines import Deadlines, Progress
from autotune.engine.engine import Engine, scrape
from autotune.engine.environment import engine_command, engine_environment, served_name
from autotune.engine.failure_classes import Consequence
from autotune.engine.failures import Failure, classify
from autotune.engine.log_lines import parse
from autotune.engine.log_tail import LogTail, set_aside
from autotune.engine.logs import BootPhase, BootReader
from autotune.engine.metrics import EngineMetrics
from autotune.engine.probe import ProbeError
from autotune.engine.process import Child, Family, start
from autotune.engine.types import BootFailed, BootKind, BootReport, EngineSpec
from autotune.engine.warm import WarmServer, WarmUnavailable
from autotune.errors import Interrupted

LOOK_EVERY_S = 0.05
SAMPLE_EVERY_S = 2.0
# SIGTERM before an engine is ready is lost or hangs it, so there is nothing to wait for.
BOOT_GRACE_S = 0.5
LAST_WORDS_S = 1.0
BLAMES_CONFIG = (Consequence.TEACHES, Consequence.PRUNES_VALUE)
POISONED_WORD = "poisoned"


def no_gate() -> None:
    """Boot at once."""


def never() -> bool:
    """Nobody asks to stop."""
    return False


def tell_nobody(phase: str, elapsed_s: float) -> None:
    """Take no notice of phases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BootHooks:
    """What a boot asks and tells its caller.

    ``gate`` runs before every start and blocks until the machine is free, or raises. ``on_phase`` gets each
    phase's name as it begins and the seconds since the start. ``stop_requested`` is asked at least five times
    a second; once it says yes, the engine is ended and ``Interrupted`` raised. ``baseline_free_bytes`` is the
    device memory that was free before anything of ours ran: it tells a leftover process from a budget that
    can never fit.
    """

    gate: Callable[[], None] = no_gate
    on_phase: Callable[[str, float], None] = tell_nobody
    stop_requested: Callable[[], bool] = never
    baseline_free_bytes: int | None = None


def boot(
    spec: EngineSpec,
    *,
    warm: WarmServer | None = None,
    deadlines: Deadlines | None = None,
    hooks: BootHooks | None = None,
) -> Engine:
    """Start an engine and return it ready; the caller stops it.

    ``warm`` lends its imports to the boot where it can (a plain boot follows where it cannot); leave it out
    for a boot that must be what a user will launch. Raises ``BootFailed`` with the reason, ``Interrupted``
    when asked to stop, and whatever ``hooks.gate`` raises. In each case all processes of the boot are gone.
    """
    deadlines, hooks = deadlines or Deadlines(), hooks or BootHooks()
    first = _Attempt(spec, warm, deadlines, hooks)
    try:
        return first.run()
    except BootFailed as failed:
        doubtful = first.kind == "warm" and failed.failure.consequence not in BLAMES_CONFIG
        if not _mended(failed.failure, spec.cache_root) and not doubtful:
            raise
    engine = _Attempt(spec, None if doubtful else warm, deadlines, hooks).run()
    if doubtful and warm is not None:
        warm.distrust("a warm boot failed where a plain one did not")
    return engine


def _mended(failure: Failure, cache_root: Path) -> bool:
    """Whether a second attempt will not meet the same trouble. A cache is moved aside once in a study."""
    if failure.cls.name == "cache_poisoned":
        already = any(cache_root.parent.glob(f"{cache_root.stem}.{POISONED_WORD}*"))
        return not already and set_aside(cache_root, POISONED_WORD) is not None
    return failure.cls.name == "port_in_use"


class _Ended(Exception):
    """The attempt is over. ``verdict`` is the failure where the log need not tell it."""

    def __init__(self, verdict: Failure | None = None) -> None:
        super().__init__()
        self.verdict = verdict


@dataclass(slots=True)
class _Attempt:
    """One start and its watch."""

    spec: EngineSpec
    warm: WarmServer | None
    deadlines: Deadlines
    hooks: BootHooks
    engine_id: str = field(default_factory=lambda: secrets.token_hex(8), init=False)
    port: int = field(default=0, init=False)
    kind: BootKind = field(default="plain", init=False)
    notes: list[str] = field(default_factory=list, init=False)
    argv: list[str] = field(default_factory=list, init=False)
    phases_s: dict[str, float] = field(default_factory=dict, init=False)
    phase: BootPhase = field(default=BootPhase.IMPORTS, init=False)
    reader: BootReader = field(default_factory=BootReader, init=False)
    began: float = field(default=0.0, init=False)
    phase_began: float = field(default=0.0, init=False)
    sampled_at: float = field(default=0.0, init=False)
    foreign_seen: bool = field(default=False, init=False)
    oom_kills_before: int | None = field(default_factory=procfs.oom_kills, init=False)
    family: Family = field(init=False)
    tail: LogTail = field(init=False)
    progress: Progress = field(init=False)

    def run(self) -> Engine:
        self.hooks.gate()
        self.port = probe.free_port()
        set_aside(self.spec.log_path, "earlier")
        self.began = self.phase_began = self.sampled_at = time.monotonic()
        self.tail = LogTail(self.spec.log_path)
        self.progress = Progress(self.deadlines, time.monotonic)
        self.family = Family(self._start(), self.spec.run_id, self.engine_id)
        engine: Engine | None = None
        try:
            self._begin(BootPhase.IMPORTS)
            while not self._ready():
                time.sleep(LOOK_EVERY_S)
            engine = self._engine()
        except _Ended as ended:
            self._fail(ended.verdict)
        finally:
            if engine is None:
                self.family.stop(BOOT_GRACE_S)
        return engine

    def _start(self) -> Child:
        self.argv = engine_command(self.spec, self.engine_id, self.port)
        if self.warm is not None:
            try:
                child = self.warm.start(self.spec, self.engine_id, self.port, self._heed_stop)
                self.kind = "warm"
                return child
            except WarmUnavailable as reason:
                self.notes.append(f"plain boot instead of a warm one: {reason}")
        env = engine_environment(self.spec, self.engine_id)
        return start(self.argv, env=env, log_path=self.spec.log_path)

    # Watching.

    def _ready(self) -> bool:
        self._check()
        owner = probe.listener(self.port, lambda: [stat.pid for stat in self.family.members()])
        if owner == "foreign":
            self._meet_stranger()
        return owner in ("ours", "unknown") and self._healthy() and self._completes()

    def _check(self) -> None:
        """Look at everything that can end the attempt."""
        self._heed_stop()
        self._read_log()
        if self.family.leader.poll() is not None:
            self._read_log()
            raise _Ended
        if time.monotonic() - self.sampled_at > SAMPLE_EVERY_S:
            self.sampled_at = time.monotonic()
            self.progress.sampled(self.family.members())
        if verdict := self.progress.verdict():
            raise _Ended(Failure.of("boot_hang", phase=self.phase, line=verdict))

    def _heed_stop(self) -> None:
        if self.hooks.stop_requested():
            raise Interrupted("Stopped while the engine was starting; its processes are gone.")

    def _read_log(self) -> None:
        lines = self.tail.read()
        for raw in lines:
            for line in parse(raw, 0):
                self.reader.feed(line)
                if self.reader.phase.rank > self.phase.rank:
                    self._begin(self.reader.phase)
        self.progress.logged(lines)

    def _begin(self, phase: BootPhase) -> None:
        self._close_phase()
        # Some are in use for a part of the boot only.
        self.family.note_files()
        self.phase, self.phase_began = phase, time.monotonic()
        self.progress.entered(phase)
        self.hooks.on_phase(str(phase), self.phase_began - self.began)

    def _close_phase(self) -> None:
        seconds = time.monotonic() - self.phase_began
        self.phases_s[str(self.phase)] = self.phases_s.get(str(self.phase), 0.0) + seconds

    def _meet_stranger(self) -> None:
        """Two looks in a row: a socket may be seen a moment before the process that holds it."""
        if self.foreign_seen:
            line = f"port {self.port} was taken by a process that is not ours"
            raise _Ended(Failure.of("port_in_use", phase=self.phase, line=line))
        self.foreign_seen = True

    def _healthy(self) -> bool:
        try:
            return probe.healthy(self.port, self._name(), self._check)
        except probe.WrongModel as error:
            self._disappoint(error)
        except ProbeError:  # not yet: refused, reset, 503
            return False

    def _completes(self) -> bool:
        try:
            limit_s = self.deadlines.limit_s(BootPhase.READY)
            tokens = probe.complete(self.port, self._name(), limit_s=limit_s, keep_waiting=self._check)
        except ProbeError as error:
            self._check()
            self._disappoint(error)
        if tokens < 2:
            self._disappoint(ProbeError(f"the first completion had {tokens} tokens instead of 2"))
        return True

    def _disappoint(self, error: ProbeError) -> NoReturn:
        """The server is up and answers wrongly: no property of the configuration that one answer could prove."""
        failure = Failure.of("request_errors", phase=self.phase, line=str(error), consequence=Consequence.RETRY_ONCE)
        raise _Ended(failure)

    def _name(self) -> str:
        return served_name(self.spec, self.engine_id)

    # The outcome.

    def _fail(self, verdict: Failure | None) -> NoReturn:
        """Judge by the log as it is before our own signals add to it: its first cause, else the verdict."""
        code = None if verdict else self._last_words()
        failure = self._classify(code) or verdict or Failure.of("exited", phase=self.phase, exit_code=code)
        self.family.note_files(self.spec.log_path)
        stop = self.family.stop(BOOT_GRACE_S)
        raise BootFailed(failure, stop, time.monotonic() - self.began)

    def _last_words(self) -> int | None:
        """The leader's exit code, after its children had a moment to end and to write down why."""
        deadline = time.monotonic() + LAST_WORDS_S
        while self.family.members() and time.monotonic() < deadline:
            time.sleep(LOOK_EVERY_S)
        return self.family.leader.poll()

    def _classify(self, exit_code: int | None) -> Failure | None:
        before, now = self.oom_kills_before, procfs.oom_kills()
        return classify(
            self.spec.log_path,
            exit_code=exit_code,
            stop_requested=False,
            oom_kills=None if before is None or now is None else now - before,
            baseline_free_bytes=self.hooks.baseline_free_bytes,
        )

    def _engine(self) -> Engine:
        boot_s = time.monotonic() - self.began
        self._close_phase()
        self._read_log()
        facts = self.reader.facts()
        self.family.note_files(self.spec.log_path)
        metrics = self._scrape()
        report = BootReport(
            kind=self.kind,
            boot_s=boot_s,
            argv=tuple(self.argv),
            log_path=self.spec.log_path,
            phases_s=dict(self.phases_s),
            facts=facts,
            kv_tokens=(metrics.kv_tokens if metrics else None) or facts.kv_tokens,
            cache_config=dict(metrics.cache_config_info) if metrics else {},
            notes=tuple(self.notes),
        )
        return Engine(self.spec, self.family, self.port, self._name(), report)

    def _scrape(self) -> EngineMetrics | None:
        """An engine may have been told to keep no statistics; it is ready all the same."""
        try:
            return scrape(self.port)
        except ProbeError as error:
            self.notes.append(f"no /metrics: {error}")
            return None
