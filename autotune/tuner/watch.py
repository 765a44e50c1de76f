"""Keeps an eye on an engine while load runs, beside the load's own event loop.

Asking an engine for its counters takes milliseconds that a load client cannot spare, so a thread asks and
the client only reads the last answer.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from autotune.engine.engine import Engine
from autotune.engine.failures import Failure
from autotune.engine.logs import BootPhase

EVERY_S = 3.0


class Watch:
    """The first failure that the watchdog saw, if any."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._done = threading.Event()
        self.failure: Failure | None = None

    @contextmanager
    def running(self) -> Iterator["Watch"]:
        """Watch within the block."""
        thread = threading.Thread(target=self._look, name="engine-watch", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._done.set()
            thread.join()

    def _look(self) -> None:
        while self.failure is None and not self._done.wait(EVERY_S):
            try:
                self.failure = self._engine.watchdog()
            except Exception as error:  # a thread's border: what is raised here would be lost, and the watch with it
                self.failure = Failure.of("unknown", phase=BootPhase.SERVING, line=f"the watch failed: {error!r}")
