"""What a failed boot means for the study.

    the configuration is at fault    ──▶ an infeasible outcome, with the margin where vLLM printed one
    the machine was in the way       ──▶ not measured: the search asks for the same trial once more
    nothing can work                 ──▶ ``EnvironmentFault``: the study stops with one cause

A machine that fails twice in the same way is not asked a third time, whatever the configuration: the
second failure of one environment class in a row ends the study.
"""

from autotune.engine.failure_classes import Consequence
from autotune.engine.failures import Failure, Margin, MarginTokens
from autotune.errors import EnvironmentFault
from autotune.search.types import Outcome

MOST_OF_A_KIND = 2


class Judge:
    """Turns failures into outcomes; ``device_bytes`` is the memory that a margin is a fraction of."""

    def __init__(self, device_bytes: int) -> None:
        self._device_bytes = device_bytes
        self._last: str | None = None
        self._in_a_row = 0

    def outcome(self, failure: Failure, cost_s: float) -> Outcome:
        """The outcome to tell. Raises ``EnvironmentFault`` where the study must stop."""
        if failure.teaches or failure.consequence is Consequence.PRUNES_VALUE:
            self._reset()
            margin = None if failure.margin is None else self._fraction(failure.margin)
            return Outcome("infeasible", margin=margin, cost_s=cost_s, reason=describe(failure))
        self._count(failure)
        return Outcome("not_measured", cost_s=cost_s, reason=describe(failure))

    def success(self) -> None:
        """An engine came up: the machine is fine."""
        self._reset()

    def _count(self, failure: Failure) -> None:
        self._in_a_row = self._in_a_row + 1 if failure.cls.name == self._last else 1
        self._last = failure.cls.name
        if failure.consequence is Consequence.STOPS_STUDY or self._in_a_row >= MOST_OF_A_KIND:
            raise EnvironmentFault(f"the study stops, for the machine is at fault. {failure}")

    def _reset(self) -> None:
        self._last, self._in_a_row = None, 0

    def _fraction(self, margin: Margin) -> float:
        """The missing share of the resource, above zero."""
        whole = margin.needed if isinstance(margin, MarginTokens) else self._device_bytes
        return max(margin.shortfall / whole, 1e-3) if whole > 0 else 1.0


def describe(failure: Failure) -> str:
    """The class with the line that proves it, in one line."""
    evidence = f": {' '.join(failure.line.split())[:200]}" if failure.line else ""
    return f"{failure.cls.name}{evidence}"
