"""One point: the study's objective read off a booted engine, and how long that may take.

A point of the search guides, so it ends early: as soon as its figure is known well enough, or it is clearly worse
than the best so far (``Incumbent``). A point of the race decides, so it takes its time.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from autotune.engine.engine import Engine
from autotune.host.detect import open_nvml
from autotune.store.models import PointRow, RunRow
from autotune.tuner.engines import FINAL
from autotune.tuner.loader import Loader
from autotune.tuner.objective import UNKNOWN, Bracket, Effort, Objective, Reading
from autotune.tuner.plan import Plan

# Closed loops on a GPU need eight waves or more for a steady window; a CPU's small requests turn over faster.
WINDOW_S = {"cuda": 10.0, "cpu": 5.0}
# A CPU's client shares its cores with the engine. Latency counts from the schedule: lag can only make it look worse.
LAG_LIMIT_MS = {"cuda": 5.0, "cpu": 50.0}
SEARCH_LONGEST, SEARCH_PRECISION = 2.0, 0.03
RACE_LONGEST, RACE_PRECISION = 4.0, 0.015


@dataclass(frozen=True, slots=True)
class Point:
    """What the objective read, and the seconds it took."""

    reading: Reading
    duration_s: float

    @property
    def value(self) -> float | None:
        """The figure where it was measured and every SLO met; never that of a point which missed one."""
        return None if self.missed else self.reading.value

    @property
    def problem(self) -> str:
        """Why it is not measured; empty where it is."""
        return self.reading.problem

    @property
    def missed(self) -> str:
        """Which SLOs were missed, in words; empty where none was."""
        return "" if self.problem else self.reading.missed

    def figure(self, aspect: str) -> float | None:
        """The value, or one of the aspects."""
        return self.reading.aspects.get(aspect) if aspect else self.value

    def missed_in(self, aspect: str) -> str:
        """Why the point has no such figure; empty where it has, or where it is not measured at all."""
        if not aspect or self.missed or aspect in self.reading.aspects:
            return self.missed
        return "misses an SLO at this load"

    def details(self) -> dict[str, Any]:
        """Everything beside the value and the measurement, for the record."""
        read = self.reading
        return {
            **read.details,
            "value_se": read.value_se,
            "missed": self.missed,
            "violations": dict(read.violations),
            "aspects": dict(read.aspects),
            "bracket": list(read.bracket),
        }


@dataclass(slots=True)
class Incumbent:
    """The best figures of own boots that met their SLOs, for ending clearly worse points early.

    ``bracket`` is the best one's, ``brackets`` holds that of every configuration (by its key) that the search measured.
    """

    objective: Objective
    beat: dict[str, float] = field(default_factory=dict)
    bracket: Bracket = UNKNOWN
    brackets: dict[str, Bracket] = field(default_factory=dict)

    @classmethod
    def of(cls, objective: Objective, record: RunRow | None) -> "Incumbent":
        """As the earlier runs of a study left it."""
        best = cls(objective)
        boots = [b for b in record.boots if b.role != FINAL] if record else []
        for key, row in ((b.config_key, p) for b in boots for p in b.points if not p.live):
            details = row.details or {}
            low, high = details.get("bracket") or UNKNOWN
            best.learn(key, row.value, details.get("aspects") or {}, (low, high))
        return best

    def learn(self, key: str, value: float | None, aspects: Mapping[str, float], bracket: Bracket) -> None:
        """Take note of a point of the configuration ``key``; ``value`` None teaches nothing."""
        if value is None:
            return
        self.brackets[key] = bracket
        if "" not in self.beat or self._better(value, self.beat[""]):
            self.bracket = bracket
        for name, figure in {"": value, **aspects}.items():
            if name not in self.beat or self._better(figure, self.beat[name]):
                self.beat[name] = figure

    def start_of(self, key: str) -> Bracket:
        """Where a search for the highest rate begins: where that of the same configuration ended, else the best's."""
        return self.brackets.get(key, self.bracket)

    def _better(self, value: float, than: float) -> bool:
        return value > than if self.objective.direction == "maximize" else value < than


def window_s(plan: Plan, *, race: bool) -> float:
    """Seconds that the shortest scored window of a point of the search, or of the race, lasts."""
    asked_s = (plan.settings.race_window_s if race else None) or plan.settings.window_s
    return asked_s or WINDOW_S[plan.device.kind]


def effort(
    plan: Plan, incumbent: Incumbent, key: str, *, race: bool, baseline: bool = False, brief: bool = False
) -> Effort:
    """How long a point of the configuration ``key`` may take; the baseline is never cut short, for all else is compared
    with it.

    A ``brief`` point of the race may last no longer than one of the search.
    """
    shortest_s = window_s(plan, race=race)
    longest, precision = (RACE_LONGEST, RACE_PRECISION) if race else (SEARCH_LONGEST, SEARCH_PRECISION)
    return Effort(
        shortest_s=shortest_s,
        longest_s=(SEARCH_LONGEST if brief else longest) * shortest_s,
        precision=precision,
        race=race,
        beat={} if race or baseline else dict(incumbent.beat),
        bracket=incumbent.start_of(key),
        lag_limit_ms=LAG_LIMIT_MS[plan.device.kind],
    )


def take_point(
    engine: Engine,
    plan: Plan,
    given: Effort,
    *,
    live: Mapping[str, int],
    seed: int,
    point_id: str,
    joules: Callable[[], float | None],
    stop: Callable[[], str | None],
    clock: Callable[[], float],
) -> Point:
    """Read the objective once; ``stop`` gives a reason as soon as that should be given up."""
    started = clock()
    loader = Loader(
        engine,
        plan.workload,
        seed=seed,
        point_id=point_id,
        vocab_size=plan.model.vocab_size,
        limits=_limits(plan, engine, live),
        joules=joules,
        stop=stop,
    )
    reading = plan.objective.take(loader, given)
    return Point(reading, clock() - started)


def stored_figure(row: PointRow, aspect: str) -> float | None:
    """``Point.figure`` of a point in the record."""
    figure = (row.details or {}).get("aspects", {}).get(aspect) if aspect else row.value
    return None if figure is None else float(figure)


def energy_counter(plan: Plan) -> Callable[[], float | None]:
    """Reads the joules that the study's GPU has used since its driver was loaded; None where nobody tells."""
    gpu = plan.device.gpu
    if gpu is None:
        return lambda: None
    nvml = open_nvml()

    def joules() -> float | None:
        used_mj = nvml.energy_mj(gpu.uuid)
        return None if used_mj is None else used_mj / 1000

    return joules


def _limits(plan: Plan, engine: Engine, live: Mapping[str, int]) -> tuple[int | None, int | None]:
    """(max-num-seqs, max-num-batched-tokens) that the engine runs under, as far as they are known."""
    seqs, tokens = plan.space.vllm_defaults.batch(plan.space.fixed.merged(engine.spec.config))
    found = (live.get("max-num-seqs", seqs), live.get("max-num-batched-tokens", tokens))
    first, second = (int(limit) if isinstance(limit, int) else None for limit in found)
    return first, second
