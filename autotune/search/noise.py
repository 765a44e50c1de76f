"""How much a number moves by itself, and so what gain may be claimed.

All is done on logarithms: noise of a throughput is a fraction of it. Two sources add up. Loads on one
engine differ a little (``within``); two engines booted alike differ more (``between``). Repeated baseline
blocks, grouped by boot, give both by a one-way analysis of variance. A spread estimated from few
blocks is itself uncertain, so a prior spread (measured on many vLLM boots: 1.8 % between boots of graph
configurations) counts as ``PRIOR_DF`` degrees of freedom.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

PRIOR_SIGMA = 0.018
PRIOR_DF = 4.0
DOUBT = 1.4


@dataclass(frozen=True, slots=True)
class NoiseFloor:
    """Relative standard deviation of one visit (own boot, ``blocks`` loads), with its degrees of freedom."""

    within: float
    between: float
    df: float = PRIOR_DF

    def visit_sigma(self, blocks: int = 1) -> float:
        """Spread of the mean of ``blocks`` loads on one fresh engine."""
        return math.sqrt(self.between**2 + self.within**2 / blocks)

    def smallest_claimable_gain(self, visits: int, blocks: int = 1, alpha: float = 0.05) -> float:
        """Smallest true gain (fraction) that ``visits`` pairs of boots show with 80 % power."""
        se = self.visit_sigma(blocks) * math.sqrt(2.0 / visits)
        return math.expm1((_t(1 - alpha, self.df) + _t(0.8, self.df)) * se)

    def visits_needed(self, gain: float, blocks: int = 1, alpha: float = 0.05, most: int = 50) -> int:
        """Pairs of boots that show a true gain (fraction) with 80 % power; ``most`` if that is not enough."""
        enough = (n for n in range(2, most) if self.smallest_claimable_gain(n, blocks, alpha) <= gain)
        return next(enough, most)


PRIOR = NoiseFloor(within=0.01, between=0.015)


def noise_floor(boots: Sequence[Sequence[float]], prior_sigma: float = PRIOR_SIGMA) -> NoiseFloor:
    """Noise from repeated loads of one configuration, grouped by boot.

    With one boot the spread between boots is unknown and the prior's is used. Values must be positive.
    """
    logs = [[math.log(v) for v in boot] for boot in boots if len(boot)]
    within_df = sum(len(boot) - 1 for boot in logs)
    within_ss = sum(_squares(boot) for boot in logs)
    within = math.sqrt((within_ss + 2 * 0.01**2) / (within_df + 2))
    means = [sum(boot) / len(boot) for boot in logs]
    between_df = max(len(means) - 1, 0)
    visit, df = pooled_variance(_squares(means), between_df, prior_sigma**2, PRIOR_DF)
    share = within**2 * (sum(1 / len(boot) for boot in logs) / len(logs) if logs else 1.0)
    return NoiseFloor(within, math.sqrt(max(visit - share, 0.0)), df)


def pooled_variance(squares: float, df: float, prior: float, prior_df: float) -> tuple[float, float]:
    """Variance and its degrees of freedom from a sum of squares and an earlier estimate.

    An earlier estimate that the data contradict (a spread more than ``DOUBT`` times as large) is left out: a noisy
    machine must not borrow a quiet machine's confidence.
    """
    if df > 0 and squares / df > DOUBT**2 * prior:
        return squares / df, df
    return (squares + prior_df * prior) / (df + prior_df), df + prior_df


def _squares(values: Sequence[float]) -> float:
    mean = sum(values) / len(values) if values else 0.0
    return sum((v - mean) ** 2 for v in values)


def _t(probability: float, df: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(df, probability))
