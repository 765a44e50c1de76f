"""The one engine that the search keeps running between trials.

A trial that only lowers limits is measured on the engine that is there; any other trial takes its place.
"""

from contextlib import ExitStack

from autotune.engine.live import LiveLimits, set_limits
from autotune.search.types import Suggestion
from autotune.space.config import LaunchConfig
from autotune.tuner.engines import Engines, Running

IDLE_S = 15.0


class Seat:
    """Holds at most one engine."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines
        self._stack = ExitStack()
        self._running: Running | None = None

    @property
    def movable(self) -> LaunchConfig | None:
        """The config of the running engine if its limits can be moved, else None."""
        return self._running.config if self._running and self._running.live else None

    def take(self, suggestion: Suggestion, role: str) -> Running:
        """The engine for a trial, under the trial's limits.

        Raises ``BootFailed`` where a new engine does not come up, ``LiveUnavailable`` where the limits do not move.
        """
        if self._running is None or not suggestion.live or suggestion.config != self._running.config:
            self.leave()
            self._running = self._stack.enter_context(
                self._engines.boot(suggestion.config, role=role, trial=suggestion.trial)
            )
        if suggestion.live:
            limits = LiveLimits(suggestion.live.get("max-num-seqs"), suggestion.live.get("max-num-batched-tokens"))
            set_limits(self._running.engine, limits, wait_s=IDLE_S)
        return self._running

    def leave(self) -> None:
        """Stop the engine, if there is one."""
        self._running = None
        self._stack.close()
