"""The time that a re-tune may take. It is never exceeded: what does not fit is not started, and at the end all stops.

``room`` forecasts from what was seen so far. Where a forecast fails (a boot that hangs, a load that stalls), a timer
asks everything to stop, early enough for an engine to end within the time.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from autotune.tuner.stop import StopFlag

# An engine that ignores SIGTERM is killed after some seconds; then its memory must come back.
STOP_S = 30.0
MOST_FOR_STOPPING = 0.1


class Deadline:
    """``budget_s`` seconds from now on; ``hit`` says that the timer had to stop things."""

    def __init__(self, budget_s: float, stop: StopFlag, clock: Callable[[], float] = time.monotonic) -> None:
        self.budget_s = budget_s
        self.hit = False
        self._stop = stop
        self._clock = clock
        self._started = clock()

    @property
    def spent_s(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._started

    @property
    def left_s(self) -> float:
        """Seconds until everything is asked to stop."""
        return self.budget_s - min(STOP_S, MOST_FOR_STOPPING * self.budget_s) - self.spent_s

    def room(self, needed_s: float) -> bool:
        """Whether something that takes so long still fits."""
        return not self._stop() and self.left_s >= needed_s

    @contextmanager
    def enforced(self) -> Iterator[None]:
        """Within: the stop flag is raised when the time is over."""
        timer = threading.Timer(max(self.left_s, 0.0), self._end)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _end(self) -> None:
        self.hit = True
        self._stop.request()
