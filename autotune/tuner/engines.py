"""Engines for one study: each is written down before it starts, and gone when its block ends.

    with engines.boot(config, role="trial", trial=3) as running:
        take_point(running.engine, …)

Search boots are fast ones where that can be had: warm (vLLM already imported) and with limits that move.
Boots of the final race are what a person will launch: plain, with nothing of ours inside. A boot that fails
is recorded with its class and raises ``BootFailed``; its cost is charged all the same.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from autotune.engine.boot import BootHooks, boot
from autotune.engine.deadlines import Deadlines
from autotune.engine.engine import Engine
from autotune.engine.failures import Failure
from autotune.engine.gates import MemoryGate
from autotune.engine.live import LiveUnavailable, blames_live_limits, has_live_limits, with_live_limits
from autotune.engine.logs import BootPhase
from autotune.engine.types import BootFailed, BootReport, EngineSpec
from autotune.engine.warm import WarmServer
from autotune.errors import AutotuneError, Interrupted
from autotune.report.progress import RunProgress
from autotune.search.budget import Budget
from autotune.space.config import LaunchConfig
from autotune.store.store import NewBoot, NewFailure
from autotune.tuner.feasible import Feasible
from autotune.tuner.plan import Plan
from autotune.tuner.session import Session
from autotune.tuner.stop import StopFlag
from autotune.tuner.variants import VARIANT

FINAL, SOAK = "final", "soak"
# What is measured here decides or is launched: nothing of ours is inside.
PLAIN = (FINAL, SOAK)
NOT_FACTS = ("phases_s", "kind", "boot_s", "log_path")


class BudgetSpent(AutotuneError):
    """A boot reached the budget's hard end; it says nothing about its configuration."""


@dataclass(frozen=True, slots=True)
class Running:
    """A ready engine and its row in the store. ``live`` says whether its limits can be moved."""

    engine: Engine
    boot_id: int
    config: LaunchConfig
    live: bool

    @property
    def boot_s(self) -> float:
        """Seconds from start to ready."""
        return self.engine.report.boot_s


class Engines:
    """Boots and stops engines for ``plan``: ``budget`` pays for everything, ``feasible`` learns from every boot."""

    def __init__(
        self,
        plan: Plan,
        session: Session,
        budget: Budget,
        feasible: Feasible,
        gate: MemoryGate,
        progress: RunProgress,
        stop: StopFlag,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan = plan
        self._session = session
        self._budget = budget
        self._feasible = feasible
        self._gate = gate
        self._progress = progress
        self._stop = stop
        self._clock = clock
        self._deadlines = Deadlines()
        self._live = plan.live_limits
        self._warm: WarmServer | None = None

    def close(self) -> None:
        """End the warm server, if there is one."""
        if self._warm is not None:
            self._warm.close()
            self._warm = None

    @contextmanager
    def boot(self, config: LaunchConfig, *, role: str, trial: int | None = None) -> Iterator[Running]:
        """A ready engine; raises ``BootFailed``, ``EnvironmentFault`` or ``Interrupted``."""
        self._stop.check()
        try:
            boot_id, engine = self._start(config, role, trial)
        except LiveUnavailable as reason:
            self._progress.note(str(reason))
            boot_id, engine = self._start(config, role, trial)
        try:
            self._record_ready(boot_id, config, engine.report)
            yield Running(engine, boot_id, config, live=has_live_limits(engine.spec))
        finally:
            self._progress.now("stopping the engine")
            stopped = engine.stop()
            self._session.store.update_boot(boot_id, status="stopped", stop_s=stopped.stop_s)
            self._budget.saw_stop(stopped.stop_s)

    def record_failure(self, boot_id: int, failure: Failure) -> None:
        """Say why an engine that was ready gave no number."""
        self._session.store.add_failure(boot_id, _row(failure))

    def _start(self, config: LaunchConfig, role: str, trial: int | None) -> tuple[int, Engine]:
        """The boot's row and its engine. Raises ``LiveUnavailable`` the first time that live limits are to blame."""
        spec = self._spec(config, role)
        boot_id = self._write_down(spec, config, role, trial)
        started = self._clock()
        try:
            warm = None if role in PLAIN else self._warm_server(spec)
            engine = boot(spec, warm=warm, deadlines=self._deadlines, hooks=self._hooks(config, role))
        except Interrupted as error:
            if self._stop() or not self._too_late(role):
                raise
            self._budget.lost_boot(self._clock() - started)
            self._session.store.update_boot(boot_id, status="interrupted", boot_s=self._clock() - started)
            raise BudgetSpent("its boot was given up, for it would not have ended within the budget") from error
        except BootFailed as error:
            self._budget.lost_boot(self._clock() - started)
            self._session.store.update_boot(boot_id, status="failed", boot_s=error.boot_s)
            self._session.store.add_failure(boot_id, _row(error.failure))
            if has_live_limits(spec) and blames_live_limits(spec.log_path):
                self._live = False
                raise LiveUnavailable("this vLLM does not take our scheduler: one point per boot from here") from error
            self._feasible.failed(error.failure, config)
            raise
        record_boot(self._budget, engine.report.kind, engine.report.boot_s, engine.report.phases_s)
        return boot_id, engine

    def _write_down(self, spec: EngineSpec, config: LaunchConfig, role: str, trial: int | None) -> int:
        return self._session.store.add_boot(
            NewBoot(
                run_id=self._session.run_id,
                role=role,
                kind="plain",
                config_key=config.key(),
                flags=dict(config.flags),
                env=dict(config.env),
                log_path=str(spec.log_path),
                trial=trial,
            )
        )

    def _spec(self, config: LaunchConfig, role: str) -> EngineSpec:
        plan = self._plan
        spec = EngineSpec(
            install=plan.install,
            model=plan.model_of(config).serve,
            config=config.without(VARIANT),
            fixed=plan.space.fixed,
            run_id=plan.study,
            log_path=plan.folder.logs.resolve() / f"{time.time_ns() // 1_000_000}-{role}-{config.key()}.log",
            cache_root=plan.folder.cache.resolve(),
            device=plan.device.gpu.uuid if plan.device.gpu else None,
        )
        if role in PLAIN or not self._live:
            return spec
        try:
            return with_live_limits(spec)
        except LiveUnavailable:
            return spec

    def _warm_server(self, spec: EngineSpec) -> WarmServer | None:
        """One warm server for the whole search, started with the first boot that can use it."""
        if self._warm is None and self._plan.warm_boots:
            self._warm = WarmServer(spec, self._plan.folder.logs.resolve() / "warm-server.log")
        return self._warm

    def _too_late(self, role: str) -> bool:
        """Whether a boot has used up the time that it could have; the baseline has all that there is."""
        keep_s = 0.0 if role in (*PLAIN, "baseline") else self._budget.reserve_s
        return self._budget.over(keep_s)

    def _hooks(self, config: LaunchConfig, role: str) -> BootHooks:
        name = config.changes_from(self._plan.space.fixed)
        return BootHooks(
            gate=self._gate,
            on_phase=lambda phase, elapsed_s: self._progress.now(f"booting ({phase}, {elapsed_s:.0f} s): {name}"),
            stop_requested=lambda: self._stop() or self._too_late(role),
            baseline_free_bytes=self._gate.baseline_bytes,
        )

    def _record_ready(self, boot_id: int, config: LaunchConfig, report: BootReport) -> None:
        self._deadlines = self._deadlines.learned(report.phases_s)
        self._feasible.booted(report.facts, config)
        facts = json.loads(json.dumps(asdict(report), default=str))
        self._session.store.update_boot(
            boot_id,
            status="ready",
            kind=report.kind,
            boot_s=report.boot_s,
            phases_s=dict(report.phases_s),
            facts={name: value for name, value in facts.items() if name not in NOT_FACTS},
        )


def record_boot(budget: Budget, kind: str, boot_s: float, phases_s: Mapping[str, float]) -> None:
    """Tell the budget what a good boot says about the race's boots."""
    compile_s, imports_s = (phases_s.get(str(phase), 0.0) for phase in (BootPhase.COMPILE, BootPhase.IMPORTS))
    budget.saw_boot(boot_s, warm=kind == "warm", compile_s=compile_s, imports_s=imports_s)


def _row(failure: Failure) -> NewFailure:
    details: dict[str, Any] = {
        "summary": failure.cls.summary,
        "advice": failure.advice,
        "line_number": failure.line_number,
        "process": failure.process,
        "exit_code": failure.exit_code,
        "margin": asdict(failure.margin) if failure.margin else None,
    }
    return NewFailure(
        failure.cls.name, failure.consequence.value, str(failure.phase or ""), failure.line or "", details
    )
