"""A machine that plays boots and points by formula on a clock of its own, under the real tuner."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from autotune.engine.failures import Failure
from autotune.engine.logs import BootFacts
from autotune.engine.types import BootFailed, BootReport, EngineSpec, StopReport
from autotune.errors import Interrupted
from autotune.load.types import Measurement
from autotune.report.progress import TrialLine
from autotune.space.config import LaunchConfig
from autotune.store.recommendation import Recommendation
from autotune.store.store import Store
from autotune.tuner.objective import Effort, Reading
from autotune.tuner.points import SEARCH_LONGEST, Point
from autotune.tuner.prepare import prepare
from autotune.tuner.session import Session
from autotune.tuner.settings import RunSettings
from autotune.tuner.stop import StopFlag
from autotune.tuner.tune import Tuner

STOPPED = StopReport(stop_s=2.0, exit_code=0, killed=False)


@dataclass
class Machine:
    """``boot_s`` and ``value`` are formulas; a boot of None seconds fails for memory, after ``fail_s``.

    ``compile_s`` comes on top of the first boot of a configuration. Points take ``point_s``, those of a race
    ``race_point_s`` unless they are brief. ``soak_kills`` says what dies under a soak. ``at`` is the time in seconds.
    """

    boot_s: Callable[[LaunchConfig], float | None] = lambda config: 20.0
    value: Callable[[LaunchConfig], float] = lambda config: 1000.0
    compile_s: float = 0.0
    fail_s: float = 10.0
    point_s: float = 10.0
    race_point_s: float = 12.0
    at: float = 0.0
    boots: list[tuple[str, LaunchConfig, float]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    soak_kills: Callable[[LaunchConfig], bool] = lambda config: False
    interrupt_after: float = float("inf")
    stop: StopFlag = field(default_factory=StopFlag)

    def pass_time(self, seconds: float, stop_requested: Callable[[], bool] = lambda: False) -> None:
        """Let seconds go by; asked every second whether to stop, as a boot does."""
        end = self.at + seconds
        while self.at < end:
            self.at = min(end, self.at + 1.0)
            if self.at >= self.interrupt_after:
                self.interrupt_after = float("inf")
                self.stop.request()
            if stop_requested():
                raise Interrupted("stopped")

    def boot(self, spec: EngineSpec, *, warm: Any, deadlines: Any, hooks: Any) -> "FakeEngine":
        role = spec.log_path.stem.split("-")[1]
        seconds = self.boot_s(spec.config)
        first = all(config != spec.config for _, config, _ in self.boots)
        self.boots.append((role, spec.config, self.at))
        if seconds is None:
            self.pass_time(self.fail_s, hooks.stop_requested)
            raise BootFailed(Failure.of("oom_weights", line="out of memory"), STOPPED, self.fail_s)
        compile_s = self.compile_s if first else 0.0
        self.pass_time(seconds + compile_s, hooks.stop_requested)
        report = BootReport(
            kind="plain",
            boot_s=seconds + compile_s,
            argv=(),
            log_path=spec.log_path,
            phases_s={"imports": seconds, "compile": compile_s},
            facts=BootFacts(),
        )
        return FakeEngine(spec, report, self)

    def roles(self) -> list[str]:
        """The role of each boot."""
        return [role for role, _, _ in self.boots]

    # What a person would see.

    def note(self, text: str) -> None:
        self.notes.append(text)

    def now(self, text: str) -> None: ...

    def trial(self, line: TrialLine) -> None:
        self.notes.append(line.text())

    def budget(self, done: float, left_s: float | None) -> None: ...


@dataclass
class FakeEngine:
    spec: EngineSpec
    report: BootReport
    machine: Machine
    base_url: str = "http://127.0.0.1:1"
    model_name: str = "m"

    def stop(self) -> StopReport:
        self.machine.pass_time(STOPPED.stop_s)
        return STOPPED

    def failure(self) -> None: ...

    def verdict(self) -> Failure | None:
        soaked = "-soak-" in self.spec.log_path.stem and self.machine.soak_kills(self.spec.config)
        return Failure.of("oom_runtime", line="CUDA out of memory") if soaked else None

    def watchdog(self) -> None: ...


def install(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the machine in the place of vLLM and the load client."""
    from autotune.tuner import engines, soak, trials

    monkeypatch.setattr(engines, "boot", machine.boot)
    monkeypatch.setattr(trials, "take_point", lambda engine, plan, given, **kw: take_point(machine, engine, given))
    monkeypatch.setattr(soak, "measure", lambda *a, **kw: measure(machine))
    monkeypatch.setattr("autotune.tuner.tune.memory_gate", lambda plan, stop: FreeGate())


class FreeGate:
    baseline_bytes = 0


def take_point(machine: Machine, engine: FakeEngine, given: Effort) -> Point:
    brief = given.longest_s <= SEARCH_LONGEST * given.shortest_s
    seconds = machine.point_s if brief else machine.race_point_s
    machine.pass_time(seconds)
    return Point(Reading(measurement=EMPTY, value=machine.value(engine.spec.config), value_se=1.0), seconds)


def measure(machine: Machine) -> Measurement:
    machine.pass_time(machine.race_point_s)
    return EMPTY


def tune(machine: Machine, settings: RunSettings) -> tuple[Recommendation, float]:
    """Run or resume a study; the recommendation and the seconds that its record says were spent."""
    plan = prepare(settings)
    plan.folder.create()
    store = Store.open(plan.storage)
    try:
        session = Session.open(plan, store)
        found = Tuner(plan, session, machine, machine.stop, lambda: machine.at).run()
        row = store.run(plan.study)
        assert row is not None
        return found, row.spent_s
    finally:
        store.close()


def settings_for(folder: Path, python: Path, space: str, **given: Any) -> RunSettings:
    """A study on the CPU with plain boots and its own space."""
    (folder / "space.yaml").write_text(space)
    fixed: Mapping[str, Any] = {"gpu": "cpu", "warm_boot": False, "live_limits": False, "study": "s"}
    files = {"vllm_python": python, "space": str(folder / "space.yaml"), "out": folder / "o"}
    return RunSettings(**{**fixed, **files, **given})


def _empty() -> Measurement:
    from autotune.load.types import Estimate

    values: dict[str, Any] = {}
    for name, kind in Measurement.__annotations__.items():
        values[name] = Estimate(0.0) if kind == "Estimate" else None
    values |= {"failures": (), "slos": (), "stopped": "", "problems": (), "notes": ()}
    values["counts"] = _Counts()
    return Measurement(**values)


@dataclass
class _Counts:
    failed: int = 0
    completed: int = 1


EMPTY = _empty()
