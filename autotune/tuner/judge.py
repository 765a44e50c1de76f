"""What a failed boot means for the study.

    the configuration is at fault    ──▶ an infeasible outcome, with the margin where vLLM printed one
    the machine was in the way       ──▶ not measured: the search asks for the same trial once more
    nothing can work                 ──▶ ``EnvironmentFault``, or ``UsageError`` where the model's files are at
                                         fault: the study stops with one cause

A machine that fails twice in the same way is not asked a third time: the second failure of one class in a
row ends the study. One exception: where the way of failing may be the configuration's own (a crash, a hang,
wrong answers), both failures were of one configuration, and another one has come up on this machine, then the
configuration is at fault. It is blamed once; if the next one fails alike, it was the machine after all.
"""

from autotune.engine.failure_classes import MODEL_AT_FAULT, Consequence
from autotune.engine.failures import Failure, Margin, MarginTokens
from autotune.errors import EnvironmentFault, UsageError
from autotune.search.types import Outcome

MOST_OF_A_KIND = 2
# Their words do not tell whose fault they are.
EITHERS_FAULT = frozenset(
    {"boot_hang", "crashed", "engine_died", "exited", "gpu_fault", "request_errors", "run_hang", "unknown"}
)


class Judge:
    """Turns failures into outcomes; ``device_bytes`` is the memory that a margin is a fraction of."""

    def __init__(self, device_bytes: int) -> None:
        self._device_bytes = device_bytes
        self._last: str | None = None
        self._last_config: str | None = None
        self._in_a_row = 0
        self._machine_works = False

    def outcome(self, failure: Failure, cost_s: float, config_key: str) -> Outcome:
        """The outcome to tell for the configuration. Raises as the module says where the study must stop."""
        if failure.teaches or failure.consequence is Consequence.PRUNES_VALUE:
            self._reset()
            margin = None if failure.margin is None else self._fraction(failure.margin)
            return Outcome("infeasible", margin=margin, cost_s=cost_s, reason=describe(failure))
        again = config_key == self._last_config
        self._count(failure, config_key)
        if self._in_a_row < MOST_OF_A_KIND and failure.consequence is not Consequence.STOPS_STUDY:
            return Outcome("not_measured", cost_s=cost_s, reason=describe(failure))
        if self._in_a_row == MOST_OF_A_KIND and again and self._machine_works and failure.cls.name in EITHERS_FAULT:
            return Outcome("infeasible", cost_s=cost_s, reason=describe(failure))
        if failure.cls.name in MODEL_AT_FAULT:
            raise UsageError(f"the study stops, for the model is at fault. {failure}")
        raise EnvironmentFault(f"the study stops, for the machine is at fault. {failure}")

    def success(self) -> None:
        """An engine came up: the machine is fine."""
        self._machine_works = True
        self._reset()

    def _count(self, failure: Failure, config_key: str) -> None:
        self._in_a_row = self._in_a_row + 1 if failure.cls.name == self._last else 1
        self._last, self._last_config = failure.cls.name, config_key

    def _reset(self) -> None:
        self._last, self._last_config, self._in_a_row = None, None, 0

    def _fraction(self, margin: Margin) -> float:
        """The missing share of the resource, above zero."""
        whole = margin.needed if isinstance(margin, MarginTokens) else self._device_bytes
        return max(margin.shortfall / whole, 1e-3) if whole > 0 else 1.0


def describe(failure: Failure) -> str:
    """The class with the line that proves it, in one line."""
    evidence = f": {' '.join(failure.line.split())[:200]}" if failure.line else ""
    return f"{failure.cls.name}{evidence}"
