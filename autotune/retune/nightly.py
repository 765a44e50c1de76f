"""A re-tune that nobody watches: once a night, within a window, alone, and only where the GPU is free.

    another run works        ─▶ skipped        all that happens is in ROOT/retune/logs/nightly.log (rotated);
    outside the window       ─▶ skipped        ROOT/retune/last.json is always the newest report;
    the GPU is in use        ─▶ skipped        hold, and an error, run the notification command
    else                     ─▶ retune, with no more time than the window has left

A skipped night says why and ends with the code of "could not decide". Nothing here needs more than what cron gives: a
missing PATH or HOME is filled in.
"""

import contextlib
import fcntl
import os
import pwd
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from time import monotonic
from typing import TextIO

from autotune.engine.gates import find_tenants
from autotune.errors import AutotuneError, UsageError
from autotune.export.files import write_atomic
from autotune.host.detect import open_nvml, read_host
from autotune.host.select import select_device
from autotune.retune.incumbent import find_incumbent
from autotune.retune.plans import RetuneSettings
from autotune.retune.report import Report
from autotune.retune.run import report_text, retune

LOG_BYTES, KEPT_LOGS = 1_000_000, 7
LEAST_S = 60.0
NOTIFY_S = 60
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NOTIFIED = ("hold", "error")

_WINDOW = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)-([01]?\d|2[0-3]):([0-5]\d)")


@dataclass(frozen=True, slots=True)
class Window:
    """A daily time span by the machine's clock; ``end`` before ``start`` means the next day."""

    start: time
    end: time

    @classmethod
    def parse(cls, text: str) -> "Window":
        """``02:00-05:00``. Raises ``UsageError`` for anything else."""
        match = _WINDOW.fullmatch(text.strip())
        if match is None or match[1] + match[2] == match[3] + match[4]:
            raise UsageError(f"the window {text!r} is no span of time. Write it like 02:00-05:00.")
        first, second, third, fourth = (int(part) for part in match.groups())
        return cls(time(first, second), time(third, fourth))

    @property
    def length_s(self) -> float:
        """Seconds from start to end."""
        return self._seconds(self.start, self.end)

    def left_s(self, now: datetime) -> float:
        """Seconds until the end; 0 outside."""
        into_s = self._seconds(self.start, now.time())
        return max(self.length_s - into_s, 0.0)

    @staticmethod
    def _seconds(start: time, end: time) -> float:
        day = datetime(2000, 1, 1)
        span = datetime.combine(day, end) - datetime.combine(day, start)
        return (span % timedelta(days=1)).total_seconds()

    def __str__(self) -> str:
        return f"{self.start:%H:%M}-{self.end:%H:%M}"


def nightly(settings: RetuneSettings, window: Window, notify: str | None = None, now: datetime | None = None) -> Report:
    """One night. Raises ``AutotuneError`` where nothing could be found out, after the notification."""
    _fill_environment()
    folder = find_incumbent(settings.study, settings.storage, settings.out).folder
    with _log(folder / "logs") as log, contextlib.redirect_stderr(log):
        try:
            report = _within(settings, window, now or datetime.now())
        except AutotuneError as error:
            print(f"error: {error}", file=log)
            _notify(notify, "error", str(error), folder / "last.json")
            raise
        print("\n".join(report.lines()), file=log)
    write_atomic(folder / "last.json", report_text(report))
    _notify(notify, report.verdict, "\n".join(report.lines()), folder / "last.json")
    return report


def _within(settings: RetuneSettings, window: Window, now: datetime) -> Report:
    print(f"--- {now:%Y-%m-%d %H:%M:%S} window {window}", file=sys.stderr)
    left_s, looked = window.left_s(now), monotonic()
    if left_s < LEAST_S:
        return _skipped(settings, f"it is {now:%H:%M}, and the window is {window}")
    with _alone() as alone:
        if not alone:
            return _skipped(settings, "another nightly run works on this machine")
        if busy := _busy(settings.gpu):
            return _skipped(settings, busy)
        left_s -= monotonic() - looked
        return retune(replace(settings, budget_s=min(settings.budget_s, left_s)))


def _skipped(settings: RetuneSettings, why: str) -> Report:
    started = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return Report(verdict="skipped", study=settings.study, started_at=started, reasons=(f"Skipped: {why}.",))


def _busy(gpu: str) -> str:
    """Who uses the device, in words; empty where it is free."""
    device = select_device(read_host(), gpu)
    if device.gpu is None:
        return ""
    tenants = find_tenants(gpu=device.gpu, nvml=open_nvml())
    return "; ".join(tenant.text for tenant in tenants if tenant.blocks)


@contextlib.contextmanager
def _alone() -> Iterator[bool]:
    """Whether no other nightly run of this user works; the kernel frees the lock when the process dies."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vllm-autotune"
    base.mkdir(parents=True, exist_ok=True)
    with open(base / "nightly.lock", "a+b") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


@contextlib.contextmanager
def _log(folder: Path) -> Iterator[TextIO]:
    """The log, opened for more; a full one is put aside first, and only the newest are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "nightly.log"
    if path.exists() and path.stat().st_size > LOG_BYTES:
        for number in range(KEPT_LOGS - 1, 0, -1):
            older = folder / f"nightly.log.{number}"
            if older.exists():
                older.replace(folder / f"nightly.log.{number + 1}")
        path.replace(folder / "nightly.log.1")
    with path.open("a", encoding="utf-8", buffering=1) as log:
        yield log


def _notify(command: str | None, verdict: str, summary: str, report: Path) -> None:
    """Run the person's command; its failure is said and changes nothing."""
    if command is None or verdict not in NOTIFIED:
        return
    told = {"AUTOTUNE_VERDICT": verdict, "AUTOTUNE_SUMMARY": summary, "AUTOTUNE_REPORT": str(report)}
    try:
        done = subprocess.run(["/bin/sh", "-c", command], env={**os.environ, **told}, timeout=NOTIFY_S, check=False)
        problem = f"ended with {done.returncode}" if done.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = str(error)
    if problem:
        print(f"the notification command {problem}: {command}", file=sys.stderr)


def _fill_environment() -> None:
    """What a login shell would have set and cron does not."""
    os.environ.setdefault("PATH", PATH)
    os.environ.setdefault("HOME", pwd.getpwuid(os.getuid()).pw_dir)
