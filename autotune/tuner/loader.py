"""Puts loads on one engine and checks what comes back: the hands of every objective.

Each load gets fresh prompts and is checked against the engine's own counters: tokens must agree, and the prefix
cache may not have served more than the workload shares. Beside the figures it says what limited the
configuration (``load.diagnosis``) and, where the GPU tells, what a token cost in energy.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import psutil

from autotune.engine.engine import Engine
from autotune.engine.metrics import EngineMetrics
from autotune.engine.probe import ProbeError
from autotune.load.capacity import Capacity
from autotune.load.capacity_run import measure_capacity
from autotune.load.checks import check_counts, check_prefix_hits
from autotune.load.diagnosis import Diagnosis, diagnose
from autotune.load.measure import measure
from autotune.load.phases import Rule
from autotune.load.records import ClientResult
from autotune.load.slo import Slo
from autotune.load.types import LoadSpec, Measurement, Target
from autotune.tuner.server_watch import ServerWatch
from autotune.workload.types import Workload

IDLE_S = 5.0
QUIET_S = 0.3
POLL_S = 0.05
Stop = Callable[[], str | None]


@dataclass(frozen=True, slots=True)
class Energy:
    """What a load cost from its first request to its last, idle power included."""

    joules: float
    joules_per_output_token: float
    mean_w: float


@dataclass(frozen=True, slots=True)
class Loaded:
    """One load: its checked measurement, what limited it and its energy; None where neither can be told."""

    measurement: Measurement
    limit: Diagnosis | None = None
    energy: Energy | None = None

    def facts(self) -> dict[str, Any]:
        """Limit and energy as plain values."""
        return {"limit": self.limit and asdict(self.limit), "energy": self.energy and asdict(self.energy)}


class Loader:
    """Loads ``engine`` with ``workload``.

    ``seed`` and ``point_id`` choose the prompts. ``limits`` = (max-num-seqs, max-num-batched-tokens) that the engine
    runs under, None where unknown. ``joules`` reads a GPU's energy counter, or gives None. ``stop`` ends a load.
    """

    def __init__(
        self,
        engine: Engine,
        workload: Workload,
        *,
        seed: int,
        point_id: str,
        vocab_size: int | None,
        limits: tuple[int | None, int | None],
        joules: Callable[[], float | None],
        stop: Stop,
    ) -> None:
        self._engine = engine
        self._workload = workload
        self._seed = seed
        self._point_id = point_id
        self._vocab_size = vocab_size
        self._limits = limits
        self._joules = joules
        self._stop = stop
        self.last: Loaded | None = None

    def measure(self, load: LoadSpec, *, tag: str = "", rules: Sequence[Rule] = (), slos: Sequence[Slo] = ()) -> Loaded:
        """One load; other ``tag``, other prompts. Raises ``ProbeError`` where the engine does not answer."""
        self._measure(
            Target(self._engine.base_url, self._engine.model_name),
            self._workload,
            load,
            seed=self._seed,
            point_id=f"{self._point_id}/{tag}" if tag else self._point_id,
            vocab_size=self._vocab_size,
            stop=self._stop,
            rules=rules,
            slos=slos,
        )
        assert self.last is not None
        return self.last

    def capacity(
        self,
        slos: Sequence[Slo],
        *,
        bracket: tuple[float | None, float | None],
        window_s: float,
        tolerance: float,
        processes: int,
        lag_limit_ms: float,
    ) -> Capacity:
        """The highest request rate that meets every SLO; each rate is checked like any other load."""
        return measure_capacity(
            Target(self._engine.base_url, self._engine.model_name),
            self._workload,
            slos,
            seed=self._seed,
            point_id=self._point_id,
            vocab_size=self._vocab_size,
            bracket=bracket,
            probe_s=(window_s, 4 * window_s),
            confirm_s=6 * window_s,
            tolerance=tolerance,
            processes=processes,
            lag_limit_ms=lag_limit_ms,
            stop=self._stop,
            take=self._measure,
        )

    def _measure(self, target: Target, workload: Workload, load: LoadSpec, /, **options: Any) -> Measurement:
        self._await_idle()
        meter = _Meter(self._engine, self._joules)
        with ServerWatch(self._scrape, period_s=min(1.0, load.min_s / 3)) as watch:

            def on_result(_: ClientResult) -> None:
                meter.mark()
                watch.mark()

            found = measure(target, workload, load, on_result=on_result, **options)
        self._engine.metrics()  # an engine that does not answer after its load has no counters to compare
        seqs, tokens = self._limits
        counters, state = watch.counters, watch.state(max_num_seqs=seqs, max_num_batched_tokens=tokens)
        problems = (*check_counts(found, *counters), *check_prefix_hits(found, *counters)) if counters else ()
        checked = replace(found, problems=(*found.problems, *problems))
        made = counters[1].generation_tokens - counters[0].generation_tokens if counters else 0.0
        limit = diagnose(checked, replace(state, front_end_cpu=meter.front_end_cpu)) if state else None
        self.last = Loaded(checked, limit, meter.energy(made))
        return checked

    def _scrape(self) -> EngineMetrics | None:
        try:
            return self._engine.metrics()
        except ProbeError:
            return None

    def _await_idle(self) -> None:
        """Requests that the last load left behind end first; one that stays is the watchdog's business.

        Gauges may stay where they were at the last step, so an engine that makes no tokens any more counts as idle.
        """
        deadline, made, quiet_from = time.monotonic() + IDLE_S, -1.0, 0.0
        while (now := time.monotonic()) < deadline:
            seen = self._engine.metrics()
            if seen.generation_tokens != made:
                made, quiet_from = seen.generation_tokens, now
            if not seen.pending or now - quiet_from > QUIET_S:
                return
            time.sleep(POLL_S)


class _Meter:
    """Energy and the API server's CPU seconds between the last two marks."""

    def __init__(self, engine: Engine, joules: Callable[[], float | None]) -> None:
        self._engine = engine
        self._joules = joules
        self._marks = [self._read()]

    def mark(self) -> None:
        self._marks.append(self._read())

    @property
    def front_end_cpu(self) -> float | None:
        """CPU seconds per second of the process that speaks HTTP."""
        (at, cpu_s, _), (end, end_cpu_s, _) = self._span()
        return None if cpu_s is None or end_cpu_s is None or end <= at else (end_cpu_s - cpu_s) / (end - at)

    def energy(self, tokens: float) -> Energy | None:
        (at, _, joules), (end, _, end_joules) = self._span()
        if joules is None or end_joules is None or end <= at or tokens <= 0:
            return None
        used = end_joules - joules
        return Energy(used, used / tokens, used / (end - at)) if used >= 0 else None

    def _span(self) -> tuple["_Mark", "_Mark"]:
        return self._marks[max(0, len(self._marks) - 2)], self._marks[-1]

    def _read(self) -> "_Mark":
        try:
            times = psutil.Process(self._engine.pid).cpu_times()
            cpu_s: float | None = times.user + times.system
        except psutil.Error:
            cpu_s = None
        return time.monotonic(), cpu_s, self._joules()


_Mark = tuple[float, float | None, float | None]
