"""Our sampler: physics first, a model of what physics misses, and cost in seconds.

Each proposal is made in four steps.

1. Prior. A roofline fitted to the points so far predicts the log of the objective (``roofline``). Without facts
   about model and device the prior is a constant.
2. Residuals. A Gaussian process (``gp``) learns the difference between measurement and prior over all axes. Live
   points count as noisier and share an offset: they guide. One more process per SLO learns its
   violation, and one on starts and crashes gives the probability to start.
3. Candidates. Uniform draws (exploration), one and two changes around the best configurations, and every live
   point of the running engine.
4. Value. Expected improvement over the best own-boot configuration (posterior mean, not the luckiest number),
   times the probabilities to start and to meet each SLO with its margin, divided by the forecast
   seconds: a point in a running engine is cheap, a boot costs more, a cold compile most.

The proposal is None, and the search over, when no own boot promises ``stop_gain`` any more.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from autotune.errors import UsageError
from autotune.search.domain import Axis, Codes, Domain
from autotune.search.gp import Axes, Fit, fit
from autotune.search.roofline import RooflinePrior
from autotune.search.samplers import Context, Proposal, RandomSampler, Sampler, TpeSampler
from autotune.search.types import Assignment, Direction, Fidelity, Observation

Array = NDArray[np.float64]
SAMPLERS = ("auto", "gp", "tpe", "random")
COMPILE_FLAGS = (
    "max-num-batched-tokens",
    "max-num-seqs",
    "block-size",
    "kv-cache-dtype",
    "quantization",
    "enforce-eager",
    "attention-backend",
    "compilation-config",
    "optimization-level",
    "performance-mode",
    "max-cudagraph-capture-size",
)


@dataclass(frozen=True, slots=True)
class Tuning:
    """Constants of the sampler, chosen on the replay benchmark. Sizes are fractions of the objective."""

    effect: float = 0.05
    slo_effect: float = 0.3
    crash_effect: float = 0.15
    change_cost: float = 0.02
    switch_cost: float = 0.1
    own_noise: float = 0.02
    live_noise: float = 0.035
    slo_noise: float = 0.05
    slo_margin: float = 0.08
    stop_gain: float = 0.0015
    least_boots: int = 8
    cost_power: float = 1.0
    live_per_boot: int = 4
    live_worth: float = 0.25
    draws: int = 100


DEFAULT = Tuning()
Scored = tuple[float, Fidelity, Codes, float]


class SurrogateSampler:
    """Constrained expected improvement per second on residuals to a roofline."""

    def __init__(
        self,
        domain: Domain,
        direction: Direction,
        prior: RooflinePrior | None = None,
        tuning: Tuning = DEFAULT,
    ) -> None:
        self._domain = domain
        self._sign = 1.0 if direction == "maximize" else -1.0
        self._prior = prior
        self._tuning = tuning
        self._operating: dict[bytes, tuple[float, ...] | None] = {}
        self._last: tuple[int, Model] | None = None

    def propose(self, context: Context) -> Proposal | None:
        """See ``Sampler.propose``."""
        model = self._model(context.history)
        costs = Costs(self._domain, context.history)
        own = self._search(context, model, costs)
        live = self._live(context, model, costs)
        chosen = max([p for p in (own, live) if p is not None], key=lambda p: p[0], default=None)
        if chosen is None or (chosen is own and self._finished(context.history, own)):
            return None
        _, fidelity, row, _ = chosen
        return Proposal(self._domain.assigned(row), fidelity, model.expected(row))

    def estimates(self, history: Sequence[Observation]) -> Sequence[float]:
        """Posterior mean of the log objective per observation (signed, larger is better)."""
        model = self._model(history)
        return [float(x) for x in model.means([o.suggestion.assignment for o in history])]

    def _model(self, history: Sequence[Observation]) -> "Model":
        """The model of a history; histories only grow, so the last one is kept by its length."""
        if self._last is None or self._last[0] != len(history):
            model = Model(self._domain, history, self._sign, self._prior, self._physics, self._tuning)
            self._last = (len(history), model)
        return self._last[1]

    def _physics(self, row: Codes) -> tuple[float, ...] | None:
        """The operating point of a row of codes, looked up once."""
        key = row.tobytes()
        if key not in self._operating and self._prior is not None:
            at = self._prior.physics(self._domain.launch(row))
            self._operating[key] = None if at is None else at.row()
        return self._operating.get(key)

    def _search(self, context: Context, model: "Model", costs: "Costs") -> "Scored | None":
        """The own boot of best value per second: draws, then climbing from the best of them."""
        pool = np.concatenate([self._domain.draw(context.rng, self._tuning.draws), model.measured_rows()])
        scores = model.improvement(pool)
        for _ in range(3):
            top = pool[np.argsort(-scores)[:4]]
            more = np.unique(np.concatenate([self._domain.around(row) for row in top]), axis=0)
            pool, scores = np.concatenate([pool, more]), np.concatenate([scores, model.improvement(more)])
        value = scores / np.array([costs.boot_s(row) + costs.point_s for row in pool]) ** self._tuning.cost_power
        for i in np.argsort(-value)[:400]:
            if context.allowed(self._domain.assigned(pool[i]), "own"):
                return float(value[i]), "own", pool[i], float(scores[i])
        return None

    def _live(self, context: Context, model: "Model", costs: "Costs") -> "Scored | None":
        """The live point of best value per second in the running engine, if it may have one more."""
        if context.running is None or _live_streak(context.history) >= self._tuning.live_per_boot:
            return None
        points = [a for a in self._domain.live_points(context.running) if context.allowed(a, "live")]
        if not points:
            return None
        rows = np.array([self._domain.row(a) for a in points])
        scores = self._tuning.live_worth * model.improvement(rows)
        i = int(np.argmax(scores))
        return float(scores[i] / costs.point_s**self._tuning.cost_power), "live", rows[i], float(scores[i])

    def _finished(self, history: Sequence[Observation], own: "Scored") -> bool:
        boots = sum(o.suggestion.fidelity == "own" for o in history)
        return boots >= self._tuning.least_boots and own[3] < self._tuning.stop_gain


class Model:
    """All that the history says about untried configurations; values are logs, larger is better."""

    def __init__(
        self,
        domain: Domain,
        history: Sequence[Observation],
        sign: float,
        prior: RooflinePrior | None,
        physics: Callable[[Codes], tuple[float, ...] | None],
        tuning: Tuning,
    ) -> None:
        self._domain = domain
        self._physics = physics
        self._sign = sign
        self._prior = prior
        self._tuning = tuning
        self._axes = Axes(
            tuple(len(a.values) for a in domain.axes),
            tuple(a.numeric for a in domain.axes),
            tuple(a.parameter.scope == "live" for a in domain.axes),
        )
        self._default = domain.row(domain.default())
        self._costs = np.array([_change_cost(a, tuning) for a in domain.axes])
        self._roofline = prior.fitted(history) if prior else None
        self._tried = np.array([domain.row(o.suggestion.assignment) for o in history], dtype=np.int64)
        self._tried = self._tried.reshape(len(history), len(domain.axes))
        self._crashed = np.array([o.outcome.status == "infeasible" for o in history], dtype=bool)
        self._live = np.array([o.suggestion.fidelity == "live" for o in history], dtype=bool)
        measured = [o for o in history if o.outcome.value is not None]
        self._fit = self._fit_objective(measured)
        self._slo_fits = self._fit_slos(measured)
        self._crashes = self._fit_crashes()
        self._best = self._incumbent()

    def measured_rows(self) -> Codes:
        """Codes of everything measured."""
        return np.asarray(self._tried[~self._crashed])

    def means(self, assignments: Sequence[Assignment]) -> Array:
        """Posterior mean of the signed log objective."""
        rows = np.array([self._domain.row(a) for a in assignments], dtype=np.int64)
        return self._predict(rows.reshape(len(assignments), len(self._domain.axes)))[0]

    def expected(self, row: Codes) -> float | None:
        """Expected objective, in its unit."""
        mean, _ = self._predict(row[None, :])
        return float(np.exp(self._sign * mean[0])) if self._fit else None

    def improvement(self, rows: Codes) -> Array:
        """Expected log improvement over the incumbent, times the probability to start and to meet the SLOs."""
        mean, sd = self._predict(rows)
        z = (mean - self._best) / sd
        gain = sd * (z * ndtr(z) + np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi))
        return np.asarray(gain * self._chance(rows) * (1 - self._crash(rows)))

    def _predict(self, rows: Codes) -> tuple[Array, Array]:
        base = self._baseline(rows)
        if self._fit is None:
            return base, np.full(len(rows), 1.0)
        mean, sd = self._fit.predict(rows.astype(np.float64))
        return base + mean, sd

    def _baseline(self, rows: Codes) -> Array:
        """Prior mean of the signed log objective: physics, less a little for every changed boot flag."""
        changed = (rows != self._default) @ self._costs
        return np.asarray(self._physical(rows) - changed)

    def _physical(self, rows: Codes) -> Array:
        """Log objective by the roofline; zero where physics says nothing."""
        if self._prior is None or self._roofline is None:
            return np.zeros(len(rows))
        points = [self._physics(row) for row in rows]
        known = np.array([p is not None for p in points], dtype=bool)
        values = np.zeros(len(rows))
        if known.any():
            table = np.array([p for p in points if p is not None])
            values[known] = self._sign * self._prior.log_values(self._roofline, table)
        return values

    def _fit_objective(self, measured: Sequence[Observation]) -> Fit | None:
        if not measured:
            return None
        rows = self.measured_rows()
        logs = self._sign * np.log([max(o.outcome.value or 0.0, 1e-9) for o in measured])
        live = self._live[~self._crashed]
        stated = np.array([(o.outcome.value_se or 0.0) / max(o.outcome.value or 0.0, 1e-9) for o in measured])
        noise = np.hypot(np.where(live, self._tuning.live_noise, self._tuning.own_noise), stated)
        return fit(self._axes, rows.astype(float), logs - self._baseline(rows), noise, live, self._tuning.effect)

    def _fit_slos(self, measured: Sequence[Observation]) -> list[Fit]:
        names = sorted({name for o in measured for name in o.outcome.violations})
        rows, live = self.measured_rows().astype(float), self._live[~self._crashed]
        noise = np.full(len(rows), self._tuning.slo_noise)
        fits = []
        for name in names:
            logs = np.log([max(1 + o.outcome.violations[name], 1e-3) for o in measured])
            fits.append(fit(self._axes, rows, logs, noise, live, self._tuning.slo_effect))
        return fits

    def _chance(self, rows: Codes) -> Array:
        """Probability that every SLO is met with its margin."""
        chance = np.ones(len(rows))
        for model in self._slo_fits:
            mean, sd = model.predict(rows.astype(np.float64))
            chance = chance * ndtr((math.log(1 - self._tuning.slo_margin) - mean) / sd)
        return chance

    def _fit_crashes(self) -> Fit | None:
        """Starts and crashes as 0 and 1: the axis that explains the crashes gets the variance."""
        if not self._crashed.any():
            return None
        labels, noise = self._crashed.astype(np.float64), np.full(len(self._crashed), 0.1)
        none = np.zeros(len(labels), dtype=bool)
        return fit(self._axes, self._tried.astype(np.float64), labels, noise, none, self._tuning.crash_effect)

    def _crash(self, rows: Codes) -> Array:
        """Probability not to start."""
        if self._crashes is None:
            return np.zeros(len(rows))
        mean, sd = self._crashes.predict(rows.astype(np.float64))
        return np.asarray(ndtr((mean - 0.5) / np.hypot(sd, 0.25)))

    def _incumbent(self) -> float:
        """Posterior mean of the best own boot that meets its SLOs; the worst seen where none does."""
        rows = self._tried[~self._crashed & ~self._live]
        if not len(rows):
            return 0.0
        mean, _ = self._predict(rows)
        meets = self._chance(rows) >= 0.5
        return float(mean[meets].max()) if meets.any() else float(mean.min())


class Costs:
    """Forecast seconds of a boot, cold or hot by its compile key, and of a point."""

    def __init__(self, domain: Domain, history: Sequence[Observation]) -> None:
        self._columns = [j for j, a in enumerate(domain.axes) if a.name in COMPILE_FLAGS]
        self._seen: set[tuple[int, ...]] = set()
        cold: list[float] = []
        hot: list[float] = []
        points: list[float] = []
        for o in history:
            points += [o.outcome.cost_s - o.outcome.boot_s] if o.outcome.status == "measured" else []
            if o.suggestion.fidelity == "own" and o.outcome.boot_s > 0:
                key = self._key(domain.row(o.suggestion.assignment))
                (hot if key in self._seen else cold).append(o.outcome.boot_s)
                self._seen.add(key)
        self.point_s = max(median(points), 1.0) if points else 20.0
        self._cold_s = median(cold) if cold else 100.0
        self._hot_s = median(hot) if hot else 0.7 * self._cold_s

    def boot_s(self, row: Codes) -> float:
        """Expected boot and stop of a row of codes."""
        return self._hot_s if self._key(row) in self._seen else self._cold_s

    def _key(self, row: Codes) -> tuple[int, ...]:
        return tuple(int(row[j]) for j in self._columns)


def make_sampler(
    name: str, domain: Domain, direction: Direction = "maximize", prior: RooflinePrior | None = None
) -> Sampler:
    """The sampler behind a name: ``auto`` (ours), ``gp`` (ours without physics), ``tpe``, ``random``."""
    if name == "random":
        return RandomSampler(domain)
    if name == "tpe":
        return TpeSampler(domain, direction)
    if name in ("auto", "gp"):
        return SurrogateSampler(domain, direction, prior if name == "auto" else None)
    raise UsageError(f"unknown sampler '{name}': use one of {', '.join(SAMPLERS)}")


def _change_cost(axis: Axis, tuning: Tuning) -> float:
    """What leaving vLLM's default is expected to cost (log).

    A switch that its developers left on is mostly right; a number, or a choice between several, depends on the
    load; a lower precision is there to be faster.
    """
    if axis.parameter.scope == "live" or axis.parameter.precision:
        return 0.0
    toggle = all(v is None or isinstance(v, bool) for v in axis.values)
    return tuning.switch_cost if toggle else tuning.change_cost


def _live_streak(history: Sequence[Observation]) -> int:
    """Live points taken since the last boot."""
    return next((i for i, o in enumerate(reversed(history)) if o.suggestion.fidelity == "own"), len(history))
