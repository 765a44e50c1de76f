"""Gaussian-process regression for a dozen or two trials over many flags.

Few boots must teach about many axes, so the model is mostly additive: the logarithm of the objective is a
constant, plus one smooth effect per axis, plus one interaction term that only near-equal configurations
share, plus noise. The covariance is a sum of fixed matrices,

    K = c 1 + sum_j v_j K_j + v_x prod_j (K_j + r (1 - K_j)) + v_l L + v_m L prod_live K_j + noise,

where ``K_j`` is a Matérn-5/2 kernel on the axis' rank (numeric axes) or "same value" (categories) and ``L`` is an
offset that all live points share, once for all and once by their live axes (small token budgets flatter). Only the
variances are fitted, by maximum a posteriori with log-normal priors: an axis without effect shrinks to nothing,
which is the automatic relevance that a dozen points can carry (length scales could not be learned from so few).
References: Rasmussen & Williams 2006, ch. 2 and 5; additive kernels after Duvenaud et al. 2011.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotrs
from scipy.optimize import minimize

Array = NDArray[np.float64]
LENGTH = 0.7
SHARED = 0.5


@dataclass(frozen=True, slots=True)
class Axes:
    """Shape of the inputs: number of values per axis, and whether their order means something."""

    sizes: tuple[int, ...]
    numeric: tuple[bool, ...]
    live: tuple[bool, ...] = ()

    def kernel(self, axis: int, left: Array, right: Array) -> Array:
        """Correlation of one axis' effect between two lists of codes; shape (len(left), len(right))."""
        gap = np.abs(left[:, None] - right[None, :])
        if not self.numeric[axis]:
            return np.asarray(gap == 0, dtype=np.float64)
        scaled = np.sqrt(5.0) * gap / max(self.sizes[axis] - 1, 1) / LENGTH
        return np.asarray((1 + scaled + scaled**2 / 3) * np.exp(-scaled))

    def components(self, left: Array, right: Array) -> Array:
        """Constant, one per axis, interaction; shape (axes + 2, len(left), len(right))."""
        single = [self.kernel(j, left[:, j], right[:, j]) for j in range(len(self.sizes))]
        together = np.ones((len(left), len(right)))
        for part in single:
            together = together * (SHARED + (1 - SHARED) * part)
        return np.stack([np.ones_like(together), *single, together])

    def offsets(self, inputs: Array, live: Array) -> Array:
        """The two offsets of live points; shape (2, n, n)."""
        shared = np.outer(live, live)
        by_axis = shared.copy()
        for j in (j for j, moves in enumerate(self.live) if moves):
            by_axis = by_axis * self.kernel(j, inputs[:, j], inputs[:, j])
        return np.stack([shared, by_axis])


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted model; ``predict`` gives mean and standard deviation of the noise-free function."""

    axes: Axes
    inputs: Array
    variances: Array
    weights: Array
    factor: Array
    offset: float

    def predict(self, points: Array) -> tuple[Array, Array]:
        """Mean and standard deviation for codes of shape (n, axes)."""
        parts = self.axes.components(points, self.inputs)
        cross = np.tensordot(self.variances[: len(parts)], parts, axes=1)
        mean = self.offset + cross @ self.weights
        explained = np.sum(cross * dpotrs(self.factor, cross.T, lower=True)[0].T, axis=1)
        total = float(np.sum(self.variances[: len(parts)]))
        return mean, np.sqrt(np.maximum(total - explained, 1e-10))


def fit(axes: Axes, inputs: Array, targets: Array, noise: Array, live: Array, scale: float, bias: float = 0.04) -> Fit:
    """Fit to ``targets`` at codes ``inputs`` (n, axes) with noise standard deviations ``noise`` (n).

    ``live`` marks points that share an unknown offset of about ``bias``; ``scale`` is the expected size
    (standard deviation) of one axis' effect.
    """
    offset = float(np.mean(targets))
    parts = np.concatenate([axes.components(inputs, inputs), axes.offsets(inputs, live.astype(np.float64))])
    centre = np.log([0.25, *([scale] * len(axes.sizes)), scale, bias / 2, bias]) * 2
    spread = np.array([0.1, *([2.0] * len(axes.sizes)), 1.0, 1.0, 1.0])
    objective = _Posterior(parts, targets - offset, noise**2, centre, spread)
    best = minimize(objective, centre, jac=True, method="L-BFGS-B", options={"maxiter": 60})
    variances = np.exp(np.clip(best.x, -25, 5))
    factor, weights = objective.solve(variances)
    return Fit(axes, inputs, variances, weights, factor, offset)


class _Posterior:
    """Negative log posterior of the log variances, with its gradient."""

    def __init__(self, parts: Array, targets: Array, noise: Array, centre: Array, spread: Array) -> None:
        self._parts = parts
        self._flat = parts.reshape(len(parts), -1)
        self._targets = targets
        self._noise = noise
        self._centre = centre
        self._spread = spread

    def solve(self, variances: Array) -> tuple[Array, Array]:
        covariance = (variances @ self._flat).reshape(self._parts.shape[1:])
        covariance[np.diag_indices_from(covariance)] += self._noise + 1e-9
        factor, failed = dpotrf(covariance, lower=True)
        if failed:
            raise np.linalg.LinAlgError(f"covariance is not positive definite: {variances}")
        return factor, dpotrs(factor, self._targets, lower=True)[0]

    def __call__(self, logs: Array) -> tuple[float, Array]:
        variances = np.exp(np.clip(logs, -25, 5))
        factor, weights = self.solve(variances)
        distance = (logs - self._centre) / self._spread
        value = 0.5 * self._targets @ weights + np.log(np.diag(factor)).sum() + 0.5 * distance @ distance
        inverse = dpotrs(factor, np.eye(len(weights)), lower=True)[0]
        inner = np.outer(weights, weights) - inverse
        slope = -0.5 * variances * (self._flat @ inner.ravel())
        return float(value), slope + distance / self._spread
