"""What may still be spent: seconds of machine time and trials.

Everything is charged as it was measured: imports, compile, warm-up, load, stop, failed boots too. The final
race is part of the budget, so its cost is kept back from the start, and grows or shrinks with the boots
seen. Before the first boot the forecast uses a guess; after it, what this machine showed. The race boots plainly:
until a plain boot was seen, it is taken for a warm one plus the imports twice, once for the API server and once
for the engine core.
"""

from dataclasses import dataclass, field
from statistics import median

IMPORTS_OF_A_PLAIN_BOOT = 2


@dataclass(slots=True)
class Budget:
    """``seconds`` and ``trials`` are limits (None: no limit); ``race_visits`` boots are kept for the end."""

    seconds: float | None = None
    trials: int | None = None
    race_visits: int = 6
    boot_guess_s: float = 90.0
    point_guess_s: float = 20.0
    spent_s: float = 0.0
    trials_done: int = 0
    boots_s: list[float] = field(default_factory=list)
    points_s: list[float] = field(default_factory=list)
    plain_boots_s: list[float] = field(default_factory=list)
    warm_boots_s: list[float] = field(default_factory=list)
    warm_imports_s: float = 0.0

    def charge_boot(self, boot_s: float) -> None:
        """A boot, whether it succeeded or not."""
        self.boots_s.append(boot_s)
        self.spent_s += boot_s

    def learn_boot(self, boot_s: float, *, warm: bool, compile_s: float = 0.0, imports_s: float = 0.0) -> None:
        """What a good boot teaches about the race's: of ``boot_s``, ``compile_s`` does not come again for the same
        config, and ``imports_s`` of a warm one come only with the first."""
        if warm:
            self.warm_boots_s.append(boot_s - compile_s - imports_s)
            self.warm_imports_s = max(self.warm_imports_s, imports_s)
        else:
            self.plain_boots_s.append(boot_s - compile_s)

    def charge_point(self, point_s: float) -> None:
        """A point with its warm-up."""
        self.points_s.append(point_s)
        self.spent_s += point_s

    def charge(self, seconds: float) -> None:
        """Anything else: waiting for memory, repairs."""
        self.spent_s += seconds

    def count_trial(self) -> None:
        """One trial was told, whatever it gave."""
        self.trials_done += 1

    @property
    def boot_s(self) -> float:
        """Expected cost of the next boot: the median of the last ones (the first is often a cold compile)."""
        return median(self.boots_s[-9:]) if self.boots_s else self.boot_guess_s

    @property
    def point_s(self) -> float:
        """Expected cost of the next point."""
        return median(self.points_s[-9:]) if self.points_s else self.point_guess_s

    @property
    def visit_s(self) -> float:
        """Expected cost of one visit of the race: what races has been compiled before."""
        return self._plain_boot_s + self.point_s

    @property
    def _plain_boot_s(self) -> float:
        """Expected cost of a plain boot whose kernels are compiled."""
        if self.plain_boots_s:
            return median(self.plain_boots_s[-9:])
        if self.warm_boots_s:
            return median(self.warm_boots_s[-9:]) + IMPORTS_OF_A_PLAIN_BOOT * self.warm_imports_s
        return self.boot_s

    @property
    def reserve_s(self) -> float:
        """Kept back for the final race."""
        return self.race_visits * self.visit_s

    @property
    def left_s(self) -> float | None:
        """Seconds left for trials, the race's reserve taken off; None without a limit."""
        return None if self.seconds is None else self.seconds - self.spent_s - self.reserve_s

    def allows_trial(self, new_boot: bool = True) -> bool:
        """Whether one more trial fits; the first (the baseline) always does."""
        if self.trials is not None and self.trials_done >= self.trials:
            return False
        cost = self.point_s + (self.boot_s if new_boot else 0.0)
        return self.trials_done == 0 or self.left_s is None or self.left_s >= cost

    def allows_visit(self) -> bool:
        """Whether one more visit of the race fits into the whole budget (10 % over is accepted)."""
        return self.seconds is None or self.spent_s + self.visit_s <= 1.1 * self.seconds

    def trials_left(self) -> int | None:
        """Forecast of trials that still fit, each with its own boot; None without any limit."""
        limits = [] if self.trials is None else [self.trials - self.trials_done]
        if self.left_s is not None:
            limits.append(int(self.left_s // (self.boot_s + self.point_s)))
        return max(min(limits), 0) if limits else None
