"""The one engine that the search keeps running between trials.

A trial that only lowers limits is measured on the engine that is there; any other trial takes its place.
"""

from collections.abc import Mapping
from contextlib import ExitStack

from autotune.engine.live import LiveLimits, LiveUnavailable, set_limits
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
            _lower(self._running, suggestion.live)
        return self._running

    def leave(self) -> None:
        """Stop the engine, if there is one."""
        self._running = None
        self._stack.close()


def _lower(running: Running, live: Mapping[str, int]) -> None:
    """Set the limits and see that the engine took them as they are. Raises ``LiveUnavailable``."""
    if not running.live:
        raise LiveUnavailable("this engine's limits cannot be moved")
    asked = LiveLimits(live.get("max-num-seqs"), live.get("max-num-batched-tokens"))
    applied = set_limits(running.engine, asked, wait_s=IDLE_S)
    if (asked.seqs or applied.seqs, asked.tokens or applied.tokens) != (applied.seqs, applied.tokens):
        raise LiveUnavailable(f"the engine runs under {applied}, asked was {asked}")
