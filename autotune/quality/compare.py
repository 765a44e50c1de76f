"""Two readings of the same texts, one number for each way in which they can differ, each with its interval.

For every position the reference gives a distribution p and the candidate a distribution q, known over their likeliest
tokens. Both are reduced to the same events: each token that both lists hold; all tokens that only the reference's list
holds, as one event (the candidate's share of it is bounded from above by its list's last entry, times their number, and
by what its list leaves over); and all the rest. The divergence KL(p || q) of what was merged is at most that of
the whole, so it never overstates; noise still shows as several nats, for then the lists share nothing.

    perplexity ratio   exp(mean(log p(text) - log q(text)))
    KL                 mean over positions, in nats
    top-1 agreement    share of positions with the same likeliest token
    decoding           the same KL over greedy answers, as far as the token before is the same: up to and including the
                       first difference (a stopping rule, so the mean is not bent by it)
    greedy agreement   share of decoded tokens before the first difference: reported only, because one different token
                       changes all that follow

Intervals are 95 % percentiles of a bootstrap over runs of 16 neighbouring positions, which are not independent.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.quality.reading import NOTHING, Reading, Scores

BLOCK = 16
DRAWS = 2000
SEED = 20260101
SMALLEST = 1e-12

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """A candidate beside its reference. ``kl`` and ``decoding_kl`` are in nats a token."""

    positions: int
    perplexity: float
    reference_perplexity: float
    perplexity_ratio: Estimate
    kl: Estimate
    top1: Estimate
    decoding_kl: Estimate
    greedy: float

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Comparison":
        """What ``to_json`` wrote."""
        fields: dict[str, Any] = {n: Estimate(**v) if isinstance(v, dict) else v for n, v in data.items()}
        return cls(**fields)


def compare(reference: Reading, candidate: Reading) -> Comparison:
    """How ``candidate`` differs. Raises ``ValueError`` where the two did not read the same prompts."""
    if reference.prompts != candidate.prompts:
        raise ValueError("two readings compare only where they read the same prompts")
    p, q = reference.passages, candidate.passages
    nats = p.own.astype(np.float64) - q.own
    decoded = _shared(reference.openings, candidate.openings)
    first, other = _rows(reference.openings, decoded), _rows(candidate.openings, decoded)
    same = first.tokens == other.tokens
    return Comparison(
        positions=len(p),
        perplexity=float(np.exp(-q.own.mean(dtype=np.float64))),
        reference_perplexity=float(np.exp(-p.own.mean(dtype=np.float64))),
        perplexity_ratio=_estimate(nats, p, np.exp),
        kl=_estimate(divergence(p, q), p),
        top1=_estimate((p.top[:, 0] == q.top[:, 0]).astype(np.float64), p),
        decoding_kl=_estimate(divergence(first, other), first),
        greedy=float(same.sum() / max(1, len(reference.openings))),
    )


def divergence(p: Scores, q: Scores) -> Array:
    """KL(p || q) for each row over the events that both lists can tell apart; shape (n,), nats."""
    p_prob, q_prob = _probabilities(p), _probabilities(q)
    match = (p.top[:, :, None] == q.top[:, None, :]) & (p.top[:, :, None] >= 0)
    found = match.any(axis=2)
    q_at_p = (match * q_prob[:, None, :]).sum(axis=2)
    shared = np.where(found, p_prob * (np.log(np.maximum(p_prob, SMALLEST)) - _log(q_at_p)), 0.0).sum(axis=1)
    left_over = np.maximum(1.0 - q_prob.sum(axis=1), 0.0)
    missing = ((p.top >= 0) & ~found).sum(axis=1)
    q_missing = np.minimum(missing * _last(q, q_prob), left_over)
    p_missing = np.where(found, 0.0, p_prob).sum(axis=1)
    p_rest = np.maximum(1.0 - p_prob.sum(axis=1), 0.0)
    q_rest = np.maximum(1.0 - q_at_p.sum(axis=1) - q_missing, 0.0)
    total: Array = shared + _term(p_missing, q_missing) + _term(p_rest, q_rest)
    return np.maximum(total, 0.0)


def _probabilities(scores: Scores) -> Array:
    probabilities: Array = np.where(scores.top >= 0, np.exp(scores.logprobs.astype(np.float64)), 0.0)
    return probabilities


def _last(scores: Scores, probabilities: Array) -> Array:
    """The smallest listed probability of each row."""
    listed = np.where(scores.logprobs > NOTHING, probabilities, np.inf)
    last: Array = np.where(np.isfinite(listed).any(axis=1), listed.min(axis=1), 0.0)
    return last


def _log(values: Array) -> Array:
    logs: Array = np.log(np.maximum(values, SMALLEST))
    return logs


def _term(p: Array, q: Array) -> Array:
    term: Array = np.where(p > SMALLEST, p * (_log(p) - _log(q)), 0.0)
    return term


def _shared(first: Scores, other: Scores) -> NDArray[np.bool_]:
    """Rows whose whole answer so far is the same in both, the first difference included."""
    keep = np.zeros(len(first), bool)
    if len(first) != len(other):
        raise ValueError("two readings compare only where both decoded as many tokens")
    for group in np.unique(first.group):
        rows = np.flatnonzero(first.group == group)
        different = np.flatnonzero(first.tokens[rows] != other.tokens[rows])
        keep[rows[: different[0] + 1] if len(different) else rows] = True
    return keep


def _rows(scores: Scores, keep: NDArray[np.bool_]) -> Scores:
    return Scores(*(getattr(scores, field)[keep] for field in Scores.__slots__))


def _same(values: Array) -> Array:
    return values


def _estimate(values: Array, rows: Scores, scale: Callable[[Array], Array] = _same) -> Estimate:
    """The mean with its bootstrap interval, on the scale that is reported."""
    if len(values) == 0:
        return Estimate(0.0, 0.0, 0.0)
    blocks = _blocks(rows.group)
    sums, counts = np.bincount(blocks, values), np.bincount(blocks)
    drawn = np.random.default_rng(SEED).integers(0, len(sums), (DRAWS, len(sums)))
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    low, high = np.percentile(means, (2.5, 97.5))
    value, low, high = scale(np.array([values.mean(), low, high])).tolist()
    return Estimate(value, min(low, value), max(high, value))


def _blocks(group: NDArray[np.int32]) -> NDArray[np.int64]:
    """A number for each run of at most ``BLOCK`` neighbouring rows of one group."""
    starts = np.r_[0, np.flatnonzero(np.diff(group)) + 1]
    within = np.arange(len(group)) - np.repeat(starts, np.diff(np.r_[starts, len(group)]))
    return np.cumsum(within % BLOCK == 0) - 1
