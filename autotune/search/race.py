"""The final race: who really wins, on fresh load.

Why: the best number of a search is the luckiest one as well (winner's curse), and two numbers taken at
different times differ by the machine's mood. So a few finalists and the baseline run again in rounds. In a
round every runner gets one visit: an engine of its own, booted anew, and the same fresh prompts as the
others of that round. Rounds alternate their order (A B C, C B A, …) so that drift hits all alike.

A visit's logarithm is modelled as runner + round + noise. The noise variance pools all runners, and the noise
floor counts as earlier evidence with its own degrees of freedom. After every round from ``min_rounds`` on,
each runner's gain over the baseline is tested one-sided; the error probability ``alpha`` is shared between
runners (Bonferroni) and rounds (equal spending), so that in a race where nothing matters the default is
kept in at least ``1 - alpha`` of cases. The race stops when the leader has won, when no runner can
still be better than the smallest gain worth claiming, or after ``max_rounds``.

The winner is the runner with the best lower bound; of all runners that cannot be told from it, the one
with the fewest changes. If that includes the baseline, the default is kept.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from autotune.search.noise import PRIOR, NoiseFloor, pooled_variance
from autotune.search.types import Direction

Verdict = Literal["adopt", "tie", "hold"]
LARGE_GAIN = 0.1


@dataclass(frozen=True, slots=True)
class Runner:
    """One configuration in the race; ``changes`` counts its flags that differ from the default."""

    key: str
    changes: int


@dataclass(frozen=True, slots=True)
class Visit:
    """Boot this runner anew and measure it. Equal ``round`` means equal prompts (use it as load seed)."""

    runner: str
    round: int


@dataclass(frozen=True, slots=True)
class Standing:
    """A runner's gain over the baseline as a fraction (0.1 = 10 % better), with its confidence interval."""

    runner: str
    gain: float
    low: float
    high: float
    value: float
    visits: int


@dataclass(frozen=True, slots=True)
class RaceResult:
    """``adopt``: ``winner`` beats the default. ``tie``: within the noise, keep the default. ``hold``: nothing
    is better than the default. ``dropped`` maps a runner to the reason why it left the race. ``half_width`` is
    half of the interval of a difference of two runners, in logarithms. ``values`` holds each runner's visits in the
    order of their rounds, half done rounds included."""

    verdict: Verdict
    winner: str | None
    standings: tuple[Standing, ...]
    dropped: Mapping[str, str] = field(default_factory=dict)
    rounds: int = 0
    half_width: float = 0.0
    values: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def gain_over(self, mine: Standing, rival: Standing) -> tuple[float, float, float]:
        """The gain of one runner over another as a fraction, with the ends of its interval."""
        gain = math.log1p(mine.gain) - math.log1p(rival.gain)
        return math.expm1(gain), math.expm1(gain - self.half_width), math.expm1(gain + self.half_width)


class Race:
    """Says which runner to visit next and judges the results.

    ``baseline`` is a runner of its own, or None where the default does not start; then the best runner is
    adopted. ``worth`` is the smallest gain (fraction) that justifies a change of configuration. ``rivals`` are
    runners whom the leader must be told from as well before the race stops early.
    """

    def __init__(
        self,
        baseline: Runner | None,
        finalists: Sequence[Runner],
        *,
        direction: Direction = "maximize",
        noise: NoiseFloor = PRIOR,
        alpha: float = 0.05,
        worth: float = 0.01,
        min_rounds: int = 2,
        max_rounds: int = 4,
        blocks: int = 1,
        rivals: Sequence[str] = (),
    ) -> None:
        self._baseline = baseline
        self._rivals = frozenset(rivals)
        self._runners = {r.key: r for r in ([baseline] if baseline else []) + list(finalists)}
        self._sign = 1.0 if direction == "maximize" else -1.0
        self._noise = noise
        self._blocks = blocks
        self._worth = worth
        self._alpha = alpha / max(len(finalists), 1) / max(max_rounds - min_rounds + 1, 1)
        self._min_rounds = min_rounds
        self._disturbed = False
        self._max_rounds = max_rounds
        self._logs: dict[tuple[str, int], float] = {}
        self._dropped: dict[str, str] = {}

    def next(self) -> Visit | None:
        """The next visit, or None when the race is decided."""
        if self._baseline_lost:
            return None
        for number in range(self._max_rounds):
            waiting = [r for r in self._order(number) if (r, number) not in self._logs]
            if waiting:
                return None if self._decided(number) else Visit(waiting[0], number)
        return None

    @property
    def runners(self) -> int:
        """Those still in the race."""
        return len(self._alive())

    def left_in_round(self, number: int) -> int:
        """Visits that a round still needs."""
        return sum((key, number) not in self._logs for key in self._alive())

    def disturb(self) -> None:
        """Others used the machine during a visit: before the last round only a large gain is believed.

        A neighbour who comes and goes moves whole visits, and two rounds may agree by chance.
        """
        self._disturbed = True

    def record(self, visit: Visit, value: float) -> None:
        """A visit's result, positive, in the objective's unit."""
        if value <= 0 or not math.isfinite(value):
            raise ValueError(f"a visit's value must be positive and finite, not {value}")
        self._logs[visit.runner, visit.round] = math.log(value)

    def drop(self, runner: str, reason: str) -> None:
        """A runner that did not boot or missed an SLO is out, whatever its numbers.

        Without its baseline a race that had one has nothing to prove a gain against: it ends without a winner.
        """
        self._dropped[runner] = reason

    def result(self) -> RaceResult:
        """The verdict on what was recorded so far; only whole rounds count."""
        rounds = self._whole_rounds()
        standings = sorted(self._standings(rounds), key=lambda s: -s.low)
        provable = rounds >= self._min_rounds and not self._baseline_lost
        winner = self._winner(standings, rounds) if provable else None
        if winner is not None:
            verdict: Verdict = "adopt"
        else:
            ahead = any(s.high > self._worth for s in standings if s.runner != self._baseline_key())
            verdict = "tie" if ahead else "hold"
        half = self._half_width(rounds) if rounds else 0.0
        values = {key: self._values(key) for key in self._runners}
        return RaceResult(verdict, winner, tuple(standings), dict(self._dropped), rounds, half, values)

    def _values(self, key: str) -> tuple[float, ...]:
        found = (self._logs.get((key, number)) for number in range(self._max_rounds))
        return tuple(math.exp(value) for value in found if value is not None)

    @property
    def _baseline_lost(self) -> bool:
        return self._baseline is not None and self._baseline.key in self._dropped

    def _baseline_key(self) -> str | None:
        alive = self._baseline is not None and self._baseline.key not in self._dropped
        return self._baseline.key if alive and self._baseline else None

    def _alive(self) -> list[str]:
        return [key for key in self._runners if key not in self._dropped]

    def _order(self, number: int) -> list[str]:
        alive = self._alive()
        return alive if number % 2 == 0 else alive[::-1]

    def _whole_rounds(self) -> int:
        if not self._alive():
            return 0
        done = (n for n in range(self._max_rounds) if any((k, n) not in self._logs for k in self._alive()))
        return next(done, self._max_rounds)

    def _decided(self, number: int) -> bool:
        """Only between rounds, so that a round is never left half done."""
        started = any((key, number) in self._logs for key in self._alive())
        finalists = [k for k in self._alive() if k != self._baseline_key()]
        if not finalists:
            return True
        if started or number < self._min_rounds:
            return False
        standings = self._standings(number)
        best = max((s for s in standings if s.runner in finalists), key=lambda s: s.gain)
        hopeless = all(s.high < self._worth for s in standings if s.runner in finalists)
        if hopeless or self._baseline_key() is None:
            return True
        return self._beats(best, number) and self._rivals_told(best, standings, number)

    def _beats(self, standing: Standing, rounds: int) -> bool:
        """Whether a runner is proven better than the baseline, and by enough."""
        doubtful = self._disturbed and rounds < self._max_rounds
        return standing.low > (LARGE_GAIN if doubtful else 0.0) and standing.gain >= self._worth

    def _rivals_told(self, best: Standing, standings: Sequence[Standing], rounds: int) -> bool:
        """Whether every rival is clearly behind the leader; a leading rival has nobody to be told from."""
        ahead = [math.log1p(best.gain) - math.log1p(s.gain) for s in standings if s.runner in self._rivals]
        return best.runner in self._rivals or all(lead > self._half_width(rounds) for lead in ahead)

    def _standings(self, rounds: int) -> list[Standing]:
        if rounds == 0:
            return []
        alive, base = self._alive(), self._baseline_key()
        reference = base or max(alive, key=lambda k: self._sign * self._mean(k, rounds))
        half = self._half_width(rounds)
        return [self._standing(key, reference, half, rounds) for key in alive]

    def _standing(self, key: str, reference: str, half: float, rounds: int) -> Standing:
        gain = self._sign * (self._mean(key, rounds) - self._mean(reference, rounds))
        spread = 0.0 if key == reference else half
        low, high = math.expm1(gain - spread), math.expm1(gain + spread)
        return Standing(key, math.expm1(gain), low, high, math.exp(self._mean(key, rounds)), rounds)

    def _mean(self, key: str, rounds: int) -> float:
        return sum(self._logs[key, n] for n in range(rounds)) / rounds

    def _half_width(self, rounds: int) -> float:
        """Half of the interval of a difference of two runners' means."""
        alive = self._alive()
        grand = sum(self._mean(k, rounds) for k in alive) / len(alive)
        offsets = [sum(self._logs[k, n] for k in alive) / len(alive) - grand for n in range(rounds)]
        squares = sum(
            (self._logs[k, n] - self._mean(k, rounds) - offsets[n]) ** 2 for k in alive for n in range(rounds)
        )
        df = (len(alive) - 1) * (rounds - 1)
        prior = self._noise.visit_sigma(self._blocks) ** 2
        variance, total_df = pooled_variance(squares, df, prior, self._noise.df)
        return self._t(total_df) * math.sqrt(2.0 * variance / rounds)

    def _t(self, df: float) -> float:
        from scipy.special import stdtrit

        return float(stdtrit(df, 1.0 - self._alpha))

    def _winner(self, standings: Sequence[Standing], rounds: int) -> str | None:
        base = self._baseline_key()
        if base is None:
            proven = list(standings)
        else:
            proven = [s for s in standings if s.runner != base and self._beats(s, rounds)]
        if not proven:
            return None
        best = max(proven, key=lambda s: s.gain)
        half = math.log1p(best.gain) - math.log1p(best.low) if base else 0.0
        close = [s for s in proven if math.log1p(best.gain) - math.log1p(s.gain) <= half / 2]
        return min(close, key=lambda s: (self._runners[s.runner].changes, -s.gain)).runner
