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
from numpy.typing import NDArray

from autotune.search.types import Observation
from autotune.space.config import LaunchConfig

Array = NDArray[np.float64]
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

    def row(self) -> tuple[float, ...]:
        """The numbers in order, for arrays of many operating points."""
        sizes = (self.batch, self.weight_bytes, self.kv_bytes_per_token, self.flops_per_token)
        return *sizes, self.input_tokens, self.output_tokens, self.bandwidth_bytes_s, self.peak_flops


class Physics(Protocol):
    """Turns a launch config into its operating point, or None where that is unknown."""

    def __call__(self, config: LaunchConfig, /) -> Operating | None: ...


@dataclass(frozen=True, slots=True)
class Roofline:
    """The three fitted numbers."""

    alpha: float = PRIOR_CENTRE[0]
    beta: float = PRIOR_CENTRE[1]
    t0_s: float = PRIOR_CENTRE[2]

    def tpots_s(self, points: Array) -> Array:
        """Predicted mean time per output token of operating points, one a row."""
        batch, weights, kv, flops, isl, osl, bandwidth, peak = points.T
        moved = (weights + batch * (isl + osl / 2) * kv) / bandwidth
        compute = flops / (self.beta * peak)
        decode = np.maximum(moved / self.alpha, batch * compute) + self.t0_s
        return np.asarray(decode + batch * isl * compute / osl)

    def tpot_s(self, at: Operating) -> float:
        """Predicted mean time per output token."""
        return float(self.tpots_s(np.array([at.row()]))[0])

    def throughput(self, at: Operating) -> float:
        """Predicted output tokens per second."""
        return at.batch / self.tpot_s(at)


class RooflinePrior:
    """The roofline as a prior mean: log of the objective.

    ``quantity``: output throughput, TPOT, or cost, which is ``scale`` over the throughput.
    """

    def __init__(
        self, physics: Physics, quantity: Literal["throughput", "tpot", "cost"] = "throughput", *, scale: float = 1.0
    ) -> None:
        self.physics = physics
        self._quantity = quantity
        self._log_scale = math.log(scale)

    def fitted(self, history: Sequence[Observation]) -> Roofline:
        """The roofline that the measured part of ``history`` supports."""
        pairs = [(self.physics(o.suggestion.target), o.outcome.value) for o in history]
        known = [(at, math.log(v)) for at, v in pairs if at is not None and v is not None and v > 0]
        return fit([at for at, _ in known], [self._log_tpot(at, log) for at, log in known])

    def log_value(self, model: Roofline, at: Operating) -> float:
        """Log of the predicted objective."""
        return float(self.log_values(model, np.array([at.row()]))[0])

    def log_values(self, model: Roofline, points: Array) -> Array:
        """Log of the predicted objective of operating points, one a row."""
        logs = np.log(model.tpots_s(points))
        if self._quantity == "tpot":
            return np.asarray(logs)
        throughput = np.log(points[:, 0]) - logs
        return np.asarray(throughput if self._quantity == "throughput" else self._log_scale - throughput)

    def _log_tpot(self, at: Operating, log_value: float) -> float:
        if self._quantity == "tpot":
            return log_value
        throughput = log_value if self._quantity == "throughput" else self._log_scale - log_value
        return math.log(at.batch) - throughput


def fit(points: Sequence[Operating], log_tpots: Sequence[float]) -> Roofline:
    """Maximum a posteriori fit of the three numbers to measured log TPOTs.

    Gauss-Newton on the logs with reweighting: the further off a point is, the less it counts (soft L1), since
    a flag that physics does not know (eager mode) must not bend the whole fit.
    """
    if not points:
        return Roofline()
    rows, targets = np.array([p.row() for p in points]), np.array(log_tpots)
    centre, precision = np.log(PRIOR_CENTRE), np.array(PRIOR_SPREAD) ** -2.0
    logs = centre.copy()
    for _ in range(30):
        base = _logs(rows, logs)
        slopes = np.array([_logs(rows, logs + step) - base for step in np.eye(3) * 1e-5]).T / 1e-5
        miss = (base - targets) / MISFIT
        weights = 1 / np.sqrt(1 + miss**2) / MISFIT**2
        curvature = slopes.T @ (slopes * weights[:, None]) + np.diag(precision)
        gradient = slopes.T @ (weights * (base - targets)) + precision * (logs - centre)
        step = np.clip(np.linalg.solve(curvature, -gradient), -0.4, 0.4)
        logs = logs + step
        if np.abs(step).max() < 1e-4:
            break
    return Roofline(*(float(x) for x in np.exp(logs)))


def _logs(rows: Array, logs: Array) -> Array:
    return np.asarray(np.log(Roofline(*(float(x) for x in np.exp(logs))).tpots_s(rows)))
