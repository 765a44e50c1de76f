"""Stopping on request: the first Ctrl-C (or SIGTERM) asks, the second one insists.

Everything that takes long polls ``StopFlag``; what was measured is kept and the engine is stopped.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from autotune.errors import Interrupted


class StopFlag:
    """Set once a person has asked to stop; safe to read from any thread."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def __call__(self) -> bool:
        """Whether a stop was asked for."""
        return self._event.is_set()

    def request(self) -> None:
        """Ask to stop."""
        self._event.set()

    def check(self) -> None:
        """Raise ``Interrupted`` if a stop was asked for."""
        if self():
            raise Interrupted("stopped on request")

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Within: SIGINT and SIGTERM set the flag; a second one raises ``KeyboardInterrupt``."""

        def handle(_number: int, _frame: FrameType | None) -> None:
            if self():
                raise KeyboardInterrupt
            self.request()

        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, handle) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
