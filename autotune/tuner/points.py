"""One point: fresh prompts at a booted engine, checked against the engine's own counters."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from autotune.engine.engine import Engine
from autotune.engine.metrics import EngineMetrics
from autotune.load.checks import check_counts
from autotune.load.measure import measure
from autotune.load.types import LoadSpec, Measurement, ServerCounters, Target
from autotune.tuner.plan import Plan

# Closed loops on a GPU need eight waves or more for a steady window; a CPU's small requests turn over faster.
WINDOW_S = {"cuda": 10.0, "cpu": 5.0}
# A point of the search guides, so it ends early; a point of the race decides, so it may take its time.
SEARCH_LONGEST, SEARCH_PRECISION = 2.0, 0.03
RACE_LONGEST, RACE_PRECISION = 4.0, 0.015


@dataclass(frozen=True, slots=True)
class Point:
    """``value`` is the objective with its standard error; None where the point is not measured."""

    value: float | None
    value_se: float | None
    measurement: Measurement
    duration_s: float

    @property
    def problem(self) -> str:
        """Why it is not measured; empty where it is."""
        return "; ".join(self.measurement.problems)


def load_spec(plan: Plan, *, race: bool) -> LoadSpec:
    """The load of the study's objective: a closed loop that saturates the engine."""
    asked_s = (plan.settings.race_window_s if race else None) or plan.settings.window_s
    shortest_s = asked_s or WINDOW_S[plan.device.kind]
    longest, precision = (RACE_LONGEST, RACE_PRECISION) if race else (SEARCH_LONGEST, SEARCH_PRECISION)
    return LoadSpec.closed(plan.concurrency, min_s=shortest_s, max_s=longest * shortest_s, precision=precision)


def take_point(
    engine: Engine,
    plan: Plan,
    *,
    race: bool,
    seed: int,
    point_id: str,
    stop: Callable[[], str | None],
    clock: Callable[[], float],
) -> Point:
    """Measure the engine once; ``stop`` gives a reason as soon as the measurement should be given up."""
    started = clock()
    before = _counters(engine.metrics())
    measurement = measure(
        Target(engine.base_url, engine.model_name),
        plan.workload,
        load_spec(plan, race=race),
        seed=seed,
        point_id=point_id,
        vocab_size=plan.model.vocab_size,
        stop=stop,
    )
    problems = check_counts(measurement, before, _counters(engine.metrics()))
    checked = replace(measurement, problems=(*measurement.problems, *problems))
    value, error = _throughput(checked)
    return Point(value, error, checked, clock() - started)


def _throughput(measurement: Measurement) -> tuple[float | None, float | None]:
    """Output tokens per second with its standard error, a 95 % interval being 1.96 of them to each side."""
    estimate = measurement.output_tokens_per_s
    if not measurement.valid or estimate.value <= 0:
        return None, None
    if estimate.low is None or estimate.high is None:
        return estimate.value, None
    return estimate.value, (estimate.high - estimate.low) / 2 / 1.96


def _counters(metrics: EngineMetrics) -> ServerCounters:
    return ServerCounters(
        prompt_tokens=metrics.prompt_tokens,
        generation_tokens=metrics.generation_tokens,
        prefix_queries=metrics.prefix_queries,
        prefix_hits=metrics.prefix_hits,
        preemptions=metrics.preemptions,
    )
