"""The load generator alone, against any OpenAI-compatible server: ``autotune bench``."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from autotune.engine.metrics import EngineMetrics, parse_metrics
from autotune.errors import EnvironmentFault, UsageError
from autotune.load.ask import ask
from autotune.load.capacity import Capacity, Probe
from autotune.load.capacity_run import measure_capacity
from autotune.load.checks import check_counts, check_prefix_hits
from autotune.load.diagnosis import Diagnosis, diagnose
from autotune.load.measure import measure
from autotune.load.phases import Progress
from autotune.load.records import ClientResult
from autotune.load.series import Series, series
from autotune.load.shape import excerpt
from autotune.load.slo import Slo
from autotune.load.types import LoadSpec, Measurement, Target
from autotune.tuner.server_watch import ServerWatch
from autotune.workload.arrivals import Arrival, Constant, Gamma, Poisson, checked_rate
from autotune.workload.load import load_workload
from autotune.workload.types import Workload, scaled

DEFAULT_CONCURRENCY = 32
SMALLEST_VOCABULARY = 32
SHORTEST_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchSettings:
    """One bench as asked for. ``seed`` None: prompts that were never sent before."""

    url: str
    workload: str = "demo"
    model: str | None = None
    api_key: str | None = field(default=None, repr=False)
    concurrency: int | None = None
    rate_per_s: float | None = None
    burstiness: float | None = None
    replay: bool = False
    capacity: bool = False
    slos: tuple[Slo, ...] = ()
    min_s: float = 10.0
    max_s: float = 60.0
    vocab_size: int | None = None
    seed: int | None = None
    processes: int = 0
    respect_eos: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class BenchResult:
    """What a bench found: a measurement, or a capacity; ``message`` says how the workload was scaled."""

    target: Target
    workload: Workload
    message: str | None
    measurement: Measurement | None = None
    capacity: Capacity | None = None
    diagnosis: Diagnosis | None = None
    series: Series | None = None


def bench(
    settings: BenchSettings,
    *,
    on_progress: Callable[[Progress], None] | None = None,
    on_probe: Callable[[Probe], None] | None = None,
    stop: Callable[[], str | None] | None = None,
) -> BenchResult:
    """Run it. Raises UsageError (settings that contradict each other) or EnvironmentFault (no server)."""
    _check(settings)
    target, max_len = find_target(settings)
    workload, message = load_workload(settings.workload), None
    if max_len:
        workload, message = scaled(workload, max_len)
    if settings.respect_eos:
        workload = replace(workload, ignore_eos=False)
    seed = secrets.randbelow(2**32) if settings.seed is None else settings.seed
    if settings.capacity:
        capacity = measure_capacity(
            target,
            workload,
            settings.slos,
            seed=seed,
            point_id="bench",
            vocab_size=settings.vocab_size,
            probe_s=(settings.min_s, settings.max_s),
            processes=settings.processes,
            confirm_s=2 * settings.max_s,
            stop=stop,
            on_probe=on_probe,
        )
        return BenchResult(target, workload, message, capacity=capacity)
    return _one_point(settings, target, workload, message, seed, on_progress, stop)


def find_target(settings: BenchSettings) -> tuple[Target, int | None]:
    """The served model and its context, as ``/v1/models`` tells. Raises EnvironmentFault, UsageError."""
    base = settings.url.rstrip("/").removesuffix("/v1")
    target = Target(base, settings.model or "", settings.api_key)
    models = _served_models(target)
    found = next((m for m in models if settings.model in (None, m["id"])), None)
    if found is None:
        names = ", ".join(m["id"] for m in models)
        raise UsageError(f"the server has no model {settings.model!r}; it serves: {names}")
    max_len = found.get("max_model_len")
    if max_len is not None and (type(max_len) is not int or max_len < 0):
        raise EnvironmentFault(
            f"{base}/v1/models says max_model_len {repr(max_len)[:80]}, which is no number of tokens.\n"
            "Give the URL of an OpenAI-compatible server."
        )
    return replace(target, model=found["id"]), max_len


def _served_models(target: Target) -> list[dict[str, Any]]:
    """What ``/v1/models`` lists, at least one: objects that have a name as ``id``. Raises EnvironmentFault."""
    url = f"{target.base_url}/v1/models"
    try:
        answer = ask(target, "/v1/models")
    except OSError as error:
        raise EnvironmentFault(
            f"{url} does not answer as an OpenAI server does: {error}.\n"
            "Check that the server is up, and that the URL (and --api-key, if it needs one) is right."
        ) from None
    try:
        listing = orjson.loads(answer)
    except orjson.JSONDecodeError:
        listing = None
    models = listing.get("data") if isinstance(listing, dict) else None
    if not isinstance(models, list) or not all(isinstance(m, dict) and isinstance(m.get("id"), str) for m in models):
        raise EnvironmentFault(
            f"{url} does not answer as an OpenAI server does: no list of models in {excerpt(answer)}.\n"
            "Give the URL of an OpenAI-compatible server, like http://127.0.0.1:8000."
        )
    if not models:
        raise EnvironmentFault(f"{url} lists no model.\nStart the server with one, or wait until it has loaded it.")
    return models


def _check(settings: BenchSettings) -> None:
    if not settings.url.startswith(("http://", "https://")):
        raise UsageError(f"{settings.url!r} is not a server's URL; give one like http://127.0.0.1:8000")
    if settings.rate_per_s is not None:
        checked_rate(settings.rate_per_s)
    if settings.vocab_size is not None and settings.vocab_size < SMALLEST_VOCABULARY:
        raise UsageError(f"--vocab-size {settings.vocab_size} is too small; give the model's own number")
    kinds = [settings.concurrency is not None, settings.rate_per_s is not None, settings.replay, settings.capacity]
    if sum(kinds) > 1:
        raise UsageError("give one of --concurrency, --rate, --replay and --capacity")
    if settings.capacity and not settings.slos:
        raise UsageError("--capacity needs at least one --slo, like --slo ttft_p95=500ms")
    if settings.min_s < SHORTEST_S:
        raise UsageError(f"--min {settings.min_s:g}s is too short to measure anything; give {SHORTEST_S:g}s or more")
    if settings.min_s > settings.max_s:
        raise UsageError(f"--min {settings.min_s:g}s is longer than --max {settings.max_s:g}s")


def _one_point(
    settings: BenchSettings,
    target: Target,
    workload: Workload,
    message: str | None,
    seed: int,
    on_progress: Callable[[Progress], None] | None,
    stop: Callable[[], str | None] | None,
) -> BenchResult:
    load = _load(settings, workload)
    kept: list[ClientResult] = []
    with ServerWatch(lambda: _scrape(target)) as watch:

        def on_result(result: ClientResult) -> None:
            kept.append(result)
            watch.mark()

        measurement = measure(
            target,
            workload,
            load,
            seed=seed,
            point_id="bench",
            vocab_size=settings.vocab_size,
            slos=settings.slos,
            stop=stop,
            on_progress=on_progress,
            on_result=on_result,
        )
    counters, state = watch.counters, watch.state()
    problems = (*check_counts(measurement, *counters), *check_prefix_hits(measurement, *counters)) if counters else ()
    checked = replace(measurement, problems=(*measurement.problems, *problems))
    return BenchResult(
        target,
        workload,
        message,
        measurement=checked,
        diagnosis=diagnose(checked, state) if state else None,
        series=series(kept[-1], open_loop=load.concurrency is None) if kept else None,
    )


def _load(settings: BenchSettings, workload: Workload) -> LoadSpec:
    window = {"min_s": settings.min_s, "max_s": settings.max_s, "processes": settings.processes}
    if settings.replay:
        if workload.arrival is None:
            raise UsageError(f"workload {workload.name!r} has no arrival times to replay; give --rate or --concurrency")
        return LoadSpec.open(workload.arrival, **window)
    if settings.rate_per_s is not None:
        return LoadSpec.open(_arrival(settings, workload, settings.rate_per_s), **window)
    return LoadSpec.closed(settings.concurrency or DEFAULT_CONCURRENCY, **window)


def _arrival(settings: BenchSettings, workload: Workload, rate_per_s: float) -> Arrival:
    if settings.burstiness is None:
        return workload.arrival.at_rate(rate_per_s) if workload.arrival else Poisson(rate_per_s)
    even = settings.burstiness == float("inf")
    return Constant(rate_per_s) if even else Gamma(rate_per_s, settings.burstiness)


def _scrape(target: Target) -> EngineMetrics | None:
    try:
        text = ask(target, "/metrics").decode(errors="replace")
        return parse_metrics(text) if "vllm:" in text else None
    except (OSError, ValueError):
        return None
