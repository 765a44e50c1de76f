"""What may still be spent: seconds of machine time and trials.

Time is wall time of the study's runs: imports, compile, warm-up, load, stop, failed boots and waiting count
alike. The final race is part of the budget, so its cost is kept back from the start, and grows or shrinks
with the boots seen. Before the first boot the forecast uses a guess; after it, what this machine showed.

A visit of the race costs more than a trial: its load may take longer, and it boots plainly. Until a plain boot was
seen, that is guessed from warm ones. The first of all reads vLLM from a cold disk: hot, a plain boot took 0.5 to 0.8 of
it (CPU and H200). Later ones show what is left beside the imports, which a plain boot does for the API server
and again, hot, for the engine core. A visit costs less where its configuration has been compiled before.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

# A study ends within 10 % of its budget; half of that is planned with where time is short.
SLACK, OVERRUN = 1.05, 1.1
HOT_OF_COLD, IMPORTS_OF_A_PLAIN_BOOT = 0.75, 1.5


@dataclass(slots=True)
class Budget:
    """``seconds`` and ``trials`` are limits (None: no limit); ``race_visits`` boots are kept for the end.

    ``before_s`` was spent by earlier runs of the study. ``race_extra_s`` is what a point of the race takes longer
    than one of the search, until one was seen. The first ``least_trials`` may use ``SLACK`` of the budget: a race
    without a search behind it is worth little.
    """

    seconds: float | None = None
    trials: int | None = None
    race_visits: int = 6
    least_trials: int = 4
    boot_guess_s: float = 90.0
    point_guess_s: float = 20.0
    race_extra_s: float = 0.0
    before_s: float = 0.0
    trials_done: int = 0
    boots_s: list[float] = field(default_factory=list)
    plain_boots_s: list[float] = field(default_factory=list)
    warm_boots_s: list[float] = field(default_factory=list)
    imports_s: float = 0.0
    points_s: list[float] = field(default_factory=list)
    race_points_s: list[float] = field(default_factory=list)
    stops_s: list[float] = field(default_factory=list)
    clock: Callable[[], float] = time.monotonic
    started: float = field(init=False)

    def __post_init__(self) -> None:
        self.started = self.clock()

    @property
    def spent_s(self) -> float:
        """Wall time of this run and of those before it."""
        return self.before_s + self.clock() - self.started

    def lost_boot(self, boot_s: float) -> None:
        """A boot that gave no engine."""
        self.boots_s.append(boot_s)

    def saw_boot(self, boot_s: float, *, warm: bool = False, compile_s: float = 0.0, imports_s: float = 0.0) -> None:
        """A good boot: of ``boot_s``, ``compile_s`` does not come again for the same config, and ``imports_s`` of a
        warm one come only with the first."""
        if warm:
            self.boots_s.append(boot_s - imports_s)
            self.warm_boots_s.append(boot_s - imports_s - compile_s)
            self.imports_s = max(self.imports_s, imports_s)
        else:
            self.boots_s.append(boot_s)
            self.plain_boots_s.append(boot_s - compile_s)

    def saw_point(self, point_s: float, *, race: bool = False) -> None:
        """A point with its warm-up."""
        (self.race_points_s if race else self.points_s).append(point_s)

    def saw_stop(self, stop_s: float) -> None:
        """An engine's end."""
        self.stops_s.append(stop_s)

    def count_trial(self) -> None:
        """One trial was told, whatever it gave."""
        self.trials_done += 1

    @property
    def boot_s(self) -> float:
        """Expected cost of the next boot: the median of the last ones (the first is often a cold compile)."""
        return _expected(self.boots_s, self.boot_guess_s)

    @property
    def point_s(self) -> float:
        """Expected cost of the next point."""
        return _expected(self.points_s, self.point_guess_s)

    @property
    def stop_s(self) -> float:
        """Expected cost of ending an engine."""
        return _expected(self.stops_s, 0.0)

    @property
    def compile_s(self) -> float:
        """Expected cost of compiling a configuration that was not booted before."""
        return max(0.0, self.boot_s - self._plain_boot_s)

    @property
    def visit_s(self) -> float:
        """Expected cost of one visit of the race."""
        point_s = _expected(self.race_points_s, self.point_s + self.race_extra_s)
        return self._plain_boot_s + point_s + self.stop_s

    @property
    def brief_visit_s(self) -> float:
        """The same where the point lasts no longer than one of the search."""
        return self._plain_boot_s + self.point_s + self.stop_s

    @property
    def _plain_boot_s(self) -> float:
        """Expected cost of a plain boot whose kernels are compiled."""
        if self.plain_boots_s or not self.warm_boots_s:
            return _expected(self.plain_boots_s, self.boot_s)
        if len(self.warm_boots_s) == 1:
            return HOT_OF_COLD * (self.warm_boots_s[0] + self.imports_s)
        return IMPORTS_OF_A_PLAIN_BOOT * self.imports_s + min(self.warm_boots_s)

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
        if self.trials_done == 0 or self.left_s is None or self.seconds is None:
            return True
        cost = self.point_s + (self.boot_s + self.stop_s if new_boot else 0.0)
        slack_s = (SLACK - 1) * self.seconds if self.trials_done < self.least_trials else 0.0
        return self.left_s + slack_s >= cost

    def allows_visits(self, visits: int, share: float = 1.0, *, brief: bool = False) -> bool:
        """Whether so many more visits of the race end within ``share`` of the budget."""
        visit_s = self.brief_visit_s if brief else self.visit_s
        return self.seconds is None or self.spent_s + visits * visit_s <= share * self.seconds

    def over(self, keep_s: float = 0.0) -> bool:
        """Whether the hard end is reached, ``keep_s`` before it: 10 % beyond the budget."""
        return self.seconds is not None and self.spent_s > OVERRUN * self.seconds - keep_s

    def trials_left(self) -> int | None:
        """Forecast of trials that still fit, each with its own boot; None without any limit."""
        limits = [] if self.trials is None else [self.trials - self.trials_done]
        if self.left_s is not None:
            limits.append(int(self.left_s // (self.boot_s + self.point_s + self.stop_s)))
        return max(min(limits), 0) if limits else None


def _expected(seen: list[float], guess: float) -> float:
    return median(seen[-9:]) if seen else guess
