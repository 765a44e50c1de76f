"""Is the new one slower? A sequential comparison of a few arms, visited in turns.

Every round visits every arm once: an engine booted anew, the round's own fresh prompts, which all arms of the round
share. Rounds alternate their order, so that drift hits all alike. The statistics are those of the final race: the
logarithm of a visit is arm + round + noise, the noise variance is pooled over the arms, and what was known of the noise
before counts with its own degrees of freedom, unless the data contradict it.

One question is asked from two sides after every round from ``MIN_ROUNDS`` on, each with its own risk, shared between
the looks (Bonferroni):

    slower, faster   the interval of the difference lies on one side of zero, and the difference is worth a change.
                     Wrong in at most ``ALPHA`` of the nights in which nothing changed, over all looks and each side.
    equal            whatever may still hide is smaller than ``MARGIN``, at ``BETA``: a night with a regression of
                     that size is called equal that seldom.

Neither within ``max_rounds``: undecided, and the report says how wide the interval was.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from autotune.search.noise import PRIOR, NoiseFloor, pooled_variance

MIN_ROUNDS, MAX_ROUNDS = 3, 10
ALPHA, BETA = 0.01, 0.03
MARGIN = 0.05
WORTH = 0.01

Answer = Literal["slower", "faster", "equal", "undecided"]


@dataclass(frozen=True, slots=True)
class Contrast:
    """One arm against another as a fraction (-0.1 = 10 % slower), with its interval at the look's own risk."""

    gain: float
    low: float
    high: float
    answer: Answer
    rounds: int


class Comparison:
    """Collects visits and answers; ``sign`` is -1 where smaller values are better."""

    def __init__(
        self, arms: Sequence[str], *, noise: NoiseFloor = PRIOR, max_rounds: int = MAX_ROUNDS, sign: float = 1.0
    ) -> None:
        self.arms = list(arms)
        self._noise = noise
        self._max_rounds = max_rounds
        self.sign = sign
        self._logs: dict[tuple[str, int], float] = {}

    def record(self, arm: str, number: int, value: float) -> None:
        """A visit's value in round ``number``. Raises ``ValueError`` unless it is positive and finite."""
        if value <= 0 or not math.isfinite(value):
            raise ValueError(f"a visit's value must be positive and finite, not {value}")
        self._logs[arm, number] = math.log(value)

    def drop(self, arm: str) -> None:
        """An arm that does not run takes no further part."""
        self.arms.remove(arm)

    def order(self, number: int) -> list[str]:
        """The arms of a round in the order of their visits."""
        return self.arms if number % 2 == 0 else self.arms[::-1]

    @property
    def rounds(self) -> int:
        """Whole rounds."""
        done = (n for n in range(self._max_rounds) if any((arm, n) not in self._logs for arm in self.arms))
        return next(done, self._max_rounds) if self.arms else 0

    @property
    def full(self) -> bool:
        """Whether there is no further round."""
        return self.rounds >= self._max_rounds

    def value(self, arm: str) -> float:
        """The arm's mean in the objective's unit (geometric)."""
        return math.exp(self._mean(arm))

    def half_width(self, alpha: float) -> float:
        """Half of the interval of a difference of two arms, in logarithms; one-sided risk ``alpha``."""
        from scipy.special import stdtrit

        variance, df = self._variance()
        return float(stdtrit(df, 1.0 - alpha)) * math.sqrt(2.0 * variance / self.rounds)

    def contrast(self, arm: str, reference: str) -> Contrast:
        """How ``arm`` does against ``reference`` by what was recorded so far."""
        if self.rounds == 0 or arm not in self.arms or reference not in self.arms:
            return Contrast(0.0, -1.0, math.inf, "undecided", 0)
        gain = self.sign * (self._mean(arm) - self._mean(reference))
        half = self.half_width(ALPHA / self._looks)
        low, high = math.expm1(gain - half), math.expm1(gain + half)
        return Contrast(math.expm1(gain), low, high, self._answer(gain, half), self.rounds)

    @property
    def _looks(self) -> int:
        return max(self._max_rounds - MIN_ROUNDS + 1, 1)

    def _answer(self, gain: float, half: float) -> Answer:
        if self.rounds < min(MIN_ROUNDS, self._max_rounds):
            return "undecided"
        worth = math.log1p(WORTH)
        if gain + half < 0 and gain <= -worth:
            return "slower"
        if gain - half > 0 and gain >= worth:
            return "faster"
        sure = self.half_width(BETA / self._looks)
        inside = gain - sure > math.log1p(-MARGIN) and gain + sure < -math.log1p(-MARGIN)
        return "equal" if inside else "undecided"

    def _mean(self, arm: str) -> float:
        return sum(self._logs[arm, n] for n in range(self.rounds)) / self.rounds

    def _variance(self) -> tuple[float, float]:
        """Variance of a visit, round effects taken out, and its degrees of freedom."""
        rounds, count = self.rounds, len(self.arms)
        means: Mapping[str, float] = {arm: self._mean(arm) for arm in self.arms}
        grand = sum(means.values()) / count
        squares = 0.0
        for n in range(rounds):
            offset = sum(self._logs[arm, n] for arm in self.arms) / count - grand
            squares += sum((self._logs[arm, n] - means[arm] - offset) ** 2 for arm in self.arms)
        df = (count - 1) * (rounds - 1)
        return pooled_variance(squares, df, self._noise.visit_sigma() ** 2, self._noise.df)
