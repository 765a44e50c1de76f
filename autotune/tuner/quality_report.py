"""What a study knows about quality, as a recommendation holds it: a row for each class, and the gain in two parts."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from autotune.quality.compare import Estimate
from autotune.search.race import Standing
from autotune.search.types import Observation
from autotune.space.config import LaunchConfig
from autotune.space.parameters import SearchSpace
from autotune.store.recommendation import GainSplit, Interval, PrecisionQuality, Recommendation
from autotune.tuner.ending import Ending
from autotune.tuner.finals import Entrant
from autotune.tuner.plan import Plan
from autotune.tuner.precision import PrecisionClass, precision_class
from autotune.tuner.quality import Measured, QualityGuard
from autotune.tuner.variants import VARIANT


def with_quality(
    recommendation: Recommendation,
    plan: Plan,
    ending: Ending,
    baseline: Entrant | None,
    guard: QualityGuard,
    history: Sequence[Observation],
) -> Recommendation:
    """The recommendation with what is known about quality; a winner's provenance says how it was verified."""
    configs = {e.config.key(): e.config for e in (*ending.finalists, *([baseline] if baseline else []))}
    standings = {configs[s.runner]: s for s in ending.race.standings if s.runner in configs}
    winner = configs.get(ending.race.winner or "")
    chosen = plan.model_of(winner or LaunchConfig())
    provenance = replace(
        recommendation.provenance,
        model=chosen.serve,
        model_revision=chosen.revision,
        quality=quality_of(guard, winner, plan.space),
    )
    return replace(
        recommendation,
        config=recommendation.config.without(VARIANT),
        variant=chosen.serve if chosen is not plan.model else None,
        quality=quality_rows(guard, plan.space, history),
        split=gain_split(plan.space, winner, history, standings),
        provenance=provenance,
        reasons=(*recommendation.reasons, *_reasons(guard, winner)),
    )


def quality_of(guard: QualityGuard, winner: LaunchConfig | None, space: SearchSpace) -> str:
    """One phrase for the provenance."""
    chosen = precision_class(space, winner or LaunchConfig())
    if chosen.published:
        return "as published"
    found = guard.find(winner or LaunchConfig())
    if found is not None and found.judgement.verdict == "within":
        return f"measured: {found.judgement.reason}"
    return "speed only: quality was not measured"


def quality_rows(
    guard: QualityGuard, space: SearchSpace, history: Sequence[Observation]
) -> tuple[PrecisionQuality, ...]:
    """The reference, every class that was measured, and every flag that did nothing."""
    best = _best_by_class(space, history)
    rows = []
    if guard.noise is not None:
        rows.append(_row(guard.noise, "reference", best))
    rows += [_row(found, found.judgement.verdict, best) for found in guard.classes]
    rows += [PrecisionQuality(name, "no effect", why) for name, why in guard.silent.items()]
    known = {row.name for row in rows}
    unknown = [c for c in best if not c.published and str(c) not in known]
    reason = guard.unavailable or "its quality was not measured"
    rows += [PrecisionQuality(str(c), "not measured", reason, value=best[c]) for c in unknown]
    return tuple(rows)


def gain_split(
    space: SearchSpace,
    winner: LaunchConfig | None,
    history: Sequence[Observation],
    standings: Mapping[LaunchConfig, Standing],
) -> GainSplit | None:
    """The winner's gain at equal precision and by precision; None where nothing won or nothing compares."""
    base = next((o.outcome.value for o in history if o.suggestion.origin == "baseline"), None)
    won = standings.get(winner) if winner is not None else None
    if winner is None or won is None or not base:
        return None
    if _same_precision(space, winner):
        return GainSplit(won.gain, 0.0, raced=True)
    raced = [s.gain for config, s in standings.items() if config != winner and _same_precision(space, config)]
    own = [
        o.outcome.value / base - 1 for o in history if o.outcome.value and _same_precision(space, o.suggestion.target)
    ]
    # The baseline races as well and gains nothing over itself, so the best of the rest is at least zero.
    equal = max([g for g in raced if g != 0.0], default=None)
    value = max(equal if equal is not None else max(own, default=0.0), 0.0)
    return GainSplit(value, (1 + won.gain) / (1 + value) - 1, raced=equal is not None)


def _same_precision(space: SearchSpace, config: LaunchConfig) -> bool:
    return precision_class(space, config).precision == precision_class(space, LaunchConfig()).precision


def _best_by_class(space: SearchSpace, history: Sequence[Observation]) -> dict[PrecisionClass, float]:
    best: dict[PrecisionClass, float] = {}
    for observation in history:
        value = observation.outcome.value
        if value is not None:
            found = precision_class(space, observation.suggestion.target)
            best[found] = max(value, best.get(found, value))
    return best


def _row(found: Measured, verdict: str, best: Mapping[PrecisionClass, float]) -> PrecisionQuality:
    c = found.comparison
    return PrecisionQuality(
        name=str(found.precision),
        verdict=verdict,
        reason=found.judgement.reason,
        perplexity=c.perplexity,
        perplexity_ratio=_interval(c.perplexity_ratio),
        kl=_interval(c.kl),
        top1=_interval(c.top1),
        greedy=c.greedy,
        weights_bytes=found.effect.weights_bytes,
        kv_bytes_per_token=found.effect.kv_bytes_per_token,
        seconds=found.seconds,
        value=best.get(found.precision),
    )


def _interval(estimate: Estimate) -> Interval:
    return Interval(estimate.value, estimate.low, estimate.high)


def _reasons(guard: QualityGuard, winner: LaunchConfig | None) -> list[str]:
    reasons = []
    if winner is not None and (found := guard.find(winner)) is not None:
        reasons.append(f"Quality of {found.precision}: {found.judgement.reason}.")
    reasons += [
        f"Not exported: {found.precision}: {found.judgement.reason}."
        for found in guard.classes
        if found.judgement.verdict != "within"
    ]
    reasons += [f"No effect: {name}: {why}." for name, why in guard.silent.items()]
    return reasons
