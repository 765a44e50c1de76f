"""What a client writes down: one row per request in growing columns, and token counts over time.

Memory is bounded whatever the length of the run: about 60 bytes a request (60 MB for a million), one sample of
the event counter per tick, and inter-token gaps folded into one histogram per second (bins 1 % wide).
All times are seconds of ``time.perf_counter``, which processes of one host share.
"""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

GAP_BINS = 2400
_GAP_SCALE = 1 / np.log(1.01)
_GAP_FLOOR_S = 1e-7


class Outcome(IntEnum):
    """How a request ended."""

    OK = 0
    CUT = 1
    HTTP_ERROR = 2
    STREAM_ERROR = 3
    ABORTED = 4
    TIMEOUT = 5
    RESET = 6
    CONNECT = 7
    NO_USAGE = 8
    NOT_A_STREAM = 9
    SHORT = 10


FAILURE_WORDS: Mapping[int, str] = {
    Outcome.HTTP_ERROR: "refused by the server",
    Outcome.STREAM_ERROR: "error event inside the stream",
    Outcome.ABORTED: "aborted by the server",
    Outcome.TIMEOUT: "timed out",
    Outcome.RESET: "connection lost",
    Outcome.CONNECT: "could not connect",
    Outcome.NO_USAGE: "stream without usage",
    Outcome.NOT_A_STREAM: "the server's answer is no completion stream",
    Outcome.SHORT: "answer shorter than asked",
}

COLUMNS: Mapping[str, Any] = {
    "due": np.float64,
    "sent": np.float64,
    "first": np.float64,
    "last": np.float64,
    "ended": np.float64,
    "prompt_tokens": np.int32,
    "output_tokens": np.int32,
    "cached_tokens": np.int32,
    "events": np.int32,
    "outcome": np.uint8,
    "partial": np.bool_,
}


class RequestLog:
    """Rows of finished requests, in the order in which they ended."""

    def __init__(self, columns: dict[str, npt.NDArray[Any]] | None = None) -> None:
        self._columns = columns or {name: np.empty(1024, dtype) for name, dtype in COLUMNS.items()}
        self._n = len(self._columns["due"]) if columns else 0

    def __len__(self) -> int:
        return self._n

    def add(self, row: tuple[float | int | bool, ...]) -> None:
        """Append one row: values in the order of ``COLUMNS``."""
        self._reserve(self._n + 1)
        for column, value in zip(self._columns.values(), row, strict=True):
            column[self._n] = value
        self._n += 1

    def extend(self, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        """Append many rows, given as columns."""
        end = self._n + len(columns["due"])
        self._reserve(end)
        for name, column in self._columns.items():
            column[self._n : end] = columns[name]
        self._n = end

    def _reserve(self, rows: int) -> None:
        capacity = len(self._columns["due"])
        if rows > capacity:
            size = max(rows, 2 * capacity)
            self._columns = {name: np.resize(column, size) for name, column in self._columns.items()}

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return self._columns[name][: self._n]

    @classmethod
    def merged(cls, logs: list["RequestLog"]) -> "RequestLog":
        """All rows, ordered by the time at which they ended."""
        order = np.argsort(np.concatenate([log["ended"] for log in logs]), kind="stable")
        return cls({name: np.concatenate([log[name] for log in logs])[order] for name in COLUMNS})


class GapHistogram:
    """Inter-token gaps, one histogram per second of the run.

    ``pending`` takes raw gaps in seconds on the hot path; ``fold`` moves them into the current second.
    """

    def __init__(self) -> None:
        self.pending = array("d")
        self.seconds: dict[int, npt.NDArray[np.int32]] = {}

    def fold(self, now_s: float) -> None:
        """Move the pending gaps into the histogram of second ``int(now_s)``."""
        if not self.pending:
            return
        gaps = np.frombuffer(self.pending, dtype=np.float64)
        bins = np.log(np.maximum(gaps, _GAP_FLOOR_S) / _GAP_FLOOR_S) * _GAP_SCALE
        counts = np.bincount(np.minimum(bins.astype(np.int64), GAP_BINS - 1), minlength=GAP_BINS)
        second = int(now_s)
        self.seconds[second] = self.seconds.get(second, np.zeros(GAP_BINS, np.int32)) + counts.astype(np.int32)
        self.pending = array("d")

    def between(self, start_s: float, end_s: float) -> npt.NDArray[np.int64]:
        """Histograms of the whole seconds inside ``[start_s, end_s]``, one row each."""
        inside = [s for s in sorted(self.seconds) if s >= start_s and s + 1 <= end_s]
        inside = inside or [s for s in sorted(self.seconds) if start_s - 1 <= s <= end_s]
        rows = [self.seconds[s] for s in inside]
        return np.array(rows, dtype=np.int64) if rows else np.zeros((0, GAP_BINS), np.int64)

    @classmethod
    def merged(cls, histograms: list["GapHistogram"]) -> "GapHistogram":
        """The sum, second by second."""
        total = cls()
        for histogram in histograms:
            for second, counts in histogram.seconds.items():
                total.seconds[second] = total.seconds.get(second, np.zeros(GAP_BINS, np.int32)) + counts
        return total


def gap_ms(position: npt.ArrayLike) -> Floats:
    """Milliseconds at (fractional) bin positions."""
    result: Floats = np.exp(np.asarray(position, np.float64) / _GAP_SCALE) * _GAP_FLOOR_S * 1e3
    return result


@dataclass(slots=True)
class Sample:
    """A client's counters at one tick: totals since its start, and what is in flight now.

    ``oldest_due`` is the due time of the oldest request in flight (infinite where there is none);
    ``loop_lag_s`` is how late the tick came.
    """

    at: float
    events: int
    first_tokens: int
    sent: int
    ended: int
    failed: int
    in_flight: int
    oldest_due: float
    loop_lag_s: float
    cpu_s: float


@dataclass(slots=True)
class ClientResult:
    """Everything that one client process saw; picklable."""

    log: RequestLog
    gaps: GapHistogram
    samples: list[Sample] = field(default_factory=list)
    failure_samples: dict[int, str] = field(default_factory=dict)
    started: float = 0.0
    exhausted: bool = False
