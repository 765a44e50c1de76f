"""What a person sees while a study runs: a line per trial, and a bar with the time left.

On a terminal (``RichProgress``) the bar stays at the bottom and lines scroll above it; elsewhere
(``PlainProgress``) every line is a log line with its time. Both write to standard error, so that the
result on standard output can be piped.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, TextIO

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn
from rich.table import Column
from rich.text import Text

from autotune.report.figures import figure

INDENT = "\n" + " " * 11
LEFT_WIDTH = len("59m59s left")


@dataclass(frozen=True, slots=True)
class TrialLine:
    """One trial as it is shown. ``value`` is None where there is no figure; ``reason`` then says why.

    ``ratio`` is the value over the default's, ``better`` whether that is an improvement. ``limit`` is what limited it.
    """

    label: str
    config: str
    status: str
    value: float | None
    unit: str
    ratio: float | None
    boot_s: float | None
    reason: str = ""
    better: bool = False
    limit: str = ""

    def text(self, width: int | None = None) -> str:
        """The line without its decoration; the configuration gets a line of its own where ``width`` is too small."""
        head = f"{self.label:>9}  {self._figure():<34} {self._boot():>9}"
        config = f"{self.config}  (limit: {self.limit})" if self.limit else self.config
        one_line = width is None or len(head) + 2 + len(config) <= width
        return f"{head}{'  ' if one_line else INDENT}{config}{self._why()}"

    def _figure(self) -> str:
        if self.value is None:
            return self.status
        ratio = "" if self.ratio is None else f"  ({self.ratio:.2f}x default)"
        return f"{figure(self.value)} {self.unit}{ratio}"

    def _boot(self) -> str:
        return "" if self.boot_s is None else f"boot {self.boot_s:.0f}s"

    def _why(self) -> str:
        return f"{INDENT}{self.reason}" if self.reason else ""


class RunProgress(Protocol):
    """Where the tuner says what it does. All methods return at once."""

    def __enter__(self) -> "RunProgress": ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def note(self, text: str) -> None:
        """A line that stays."""

    def now(self, text: str) -> None:
        """What is going on at this moment."""

    def trial(self, line: TrialLine) -> None:
        """A trial has ended."""

    def budget(self, done: float, left_s: float | None) -> None:
        """``done`` is the share of the budget that is used (0 to 1), ``left_s`` the seconds left if known."""


def run_progress(stream: TextIO | None = None) -> RunProgress:
    """The reporter that suits the stream (standard error unless given)."""
    stream = stream or sys.stderr
    return RichProgress(Console(file=stream)) if stream.isatty() else PlainProgress(stream)


class RichProgress:
    """Lines above a live bar."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = Progress(
            SpinnerColumn(),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[left]}", style="cyan", table_column=Column(no_wrap=True, min_width=LEFT_WIDTH)),
            TextColumn("{task.description}", style="dim", table_column=Column(no_wrap=True, ratio=1)),
            console=console,
            transient=True,
            expand=True,
        )
        self._task: TaskID = self._bar.add_task("starting", total=1.0, left="")

    def __enter__(self) -> "RichProgress":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def note(self, text: str) -> None:
        self._console.print(escape(text), highlight=False)

    def now(self, text: str) -> None:
        self._bar.update(self._task, description=escape(text))

    def trial(self, line: TrialLine) -> None:
        style = "yellow" if line.value is None else "green" if line.better else ""
        self._console.print(Text(line.text(self._console.width), style=style), highlight=False)

    def budget(self, done: float, left_s: float | None) -> None:
        left = "" if left_s is None else f"{_clock(left_s)} left"
        self._bar.update(self._task, completed=min(done, 1.0), left=left)


class PlainProgress:
    """One log line per event, with the seconds since the start."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._started = clock()
        self._left = ""

    def __enter__(self) -> "PlainProgress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.flush()

    def note(self, text: str) -> None:
        for line in text.splitlines():
            self._stream.write(f"[{self._clock() - self._started:6.0f}s] {line}\n")
        self._stream.flush()

    def now(self, text: str) -> None:
        """Moments are for terminals; a log keeps what stays."""

    def trial(self, line: TrialLine) -> None:
        self.note(line.text() + self._left)

    def budget(self, done: float, left_s: float | None) -> None:
        self._left = "" if left_s is None else f"  [{100 * min(done, 1.0):.0f} % of the budget, {_clock(left_s)} left]"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{rest:02d}s"
