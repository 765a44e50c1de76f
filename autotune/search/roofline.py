"""What physics says a configuration should give, with three numbers learned from this machine.

For ``B`` requests in flight, weights of ``W`` bytes, ``k`` bytes of KV cache per token, mean context ``L`` and
``F`` floating-point operations per token, on a device of peak bandwidth and compute:

    decode step  t_d = max((W + B L k) / (alpha BW), B F / (beta C)) + t_0
    prefill      t_p = ISL F / (beta C)
    closed loop  TPOT = t_d + B t_p / OSL,   throughput = B / TPOT

``alpha`` and ``beta`` (achieved share of bandwidth and of compute) and ``t_0`` (seconds per step for
launching, scheduling and streaming) are fitted to the measured points from a prior, so that one point already
helps; four points predict TPOT of the others within 4 to 8 % on public measurements with one or two GPUs. They are
effective, not physical. The roofline orders candidates; it decides nothing, and says nothing of TTFT.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from autotune.search.types import Observation
from autotune.space.config import LaunchConfig

PRIOR_CENTRE = (0.7, 0.45, 0.004)
PRIOR_SPREAD = (0.25, 0.35, 0.7)
MISFIT = 0.06


@dataclass(frozen=True, slots=True)
class Operating:
    """One configuration under one workload, as the roofline sees it.

    ``batch`` is the number of requests that really decode together: the load's concurrency, cut by
    max-num-seqs and by the KV cache. Bytes are per GPU; ``peak_flops`` is for the weights' data type.
    """

    batch: float
    weight_bytes: float
    kv_bytes_per_token: float
    flops_per_token: float
    input_tokens: float
    output_tokens: float
    bandwidth_bytes_s: float
    peak_flops: float


class Physics(Protocol):
    """Turns a launch config into its operating point, or None where that is unknown."""

    def __call__(self, config: LaunchConfig, /) -> Operating | None: ...


@dataclass(frozen=True, slots=True)
class Roofline:
    """The three fitted numbers."""

    alpha: float = PRIOR_CENTRE[0]
    beta: float = PRIOR_CENTRE[1]
    t0_s: float = PRIOR_CENTRE[2]

    def tpot_s(self, at: Operating) -> float:
        """Predicted mean time per output token."""
        context = at.input_tokens + at.output_tokens / 2
        moved = (at.weight_bytes + at.batch * context * at.kv_bytes_per_token) / at.bandwidth_bytes_s
        compute = at.flops_per_token / (self.beta * at.peak_flops)
        decode = max(moved / self.alpha, at.batch * compute) + self.t0_s
        return decode + at.batch * at.input_tokens * compute / at.output_tokens

    def throughput(self, at: Operating) -> float:
        """Predicted output tokens per second."""
        return at.batch / self.tpot_s(at)


class RooflinePrior:
    """The roofline as a prior mean: log of the objective, which is output throughput or TPOT."""

    def __init__(self, physics: Physics, quantity: Literal["throughput", "tpot"] = "throughput") -> None:
        self.physics = physics
        self._quantity = quantity

    def fitted(self, history: Sequence[Observation]) -> Roofline:
        """The roofline that the measured part of ``history`` supports."""
        pairs = [(self.physics(o.suggestion.target), o.outcome.value) for o in history]
        known = [(at, math.log(v)) for at, v in pairs if at is not None and v is not None and v > 0]
        return fit([at for at, _ in known], [self._log_tpot(at, log) for at, log in known])

    def log_value(self, model: Roofline, at: Operating) -> float:
        """Log of the predicted objective."""
        return math.log(model.throughput(at) if self._quantity == "throughput" else model.tpot_s(at))

    def _log_tpot(self, at: Operating, log_value: float) -> float:
        return math.log(at.batch) - log_value if self._quantity == "throughput" else log_value


def fit(points: Sequence[Operating], log_tpots: Sequence[float]) -> Roofline:
    """Maximum a posteriori fit of the three numbers to measured log TPOTs."""
    if not points:
        return Roofline()
    from scipy.optimize import least_squares

    centre, spread = np.log(PRIOR_CENTRE), np.array(PRIOR_SPREAD)

    def residuals(logs: np.ndarray) -> np.ndarray:
        model = Roofline(*np.exp(logs))
        misses = [(math.log(model.tpot_s(p)) - t) / MISFIT for p, t in zip(points, log_tpots, strict=True)]
        return np.concatenate([misses, (logs - centre) / spread])

    # Soft loss: a flag that physics does not know (eager mode) must not bend the whole fit.
    best = least_squares(residuals, centre, loss="soft_l1", max_nfev=60)
    return Roofline(*(float(x) for x in np.exp(best.x)))
