"""Engines for one study: each is written down before it starts, and gone when its block ends.

    with engines.boot(config, role="trial", trial=3) as running:
        take_point(running.engine, …)

A boot that fails is recorded with its class and raises ``BootFailed``; its cost is charged all the same.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from autotune.engine.boot import BootHooks, boot
from autotune.engine.engine import Engine
from autotune.engine.failures import Failure
from autotune.engine.types import BootFailed, BootKind, BootReport, EngineSpec
from autotune.report.progress import RunProgress
from autotune.search.budget import Budget
from autotune.space.config import LaunchConfig
from autotune.store.store import NewBoot, NewFailure
from autotune.tuner.plan import Plan
from autotune.tuner.session import Session
from autotune.tuner.stop import StopFlag


@dataclass(frozen=True, slots=True)
class Running:
    """A ready engine and its row in the store."""

    engine: Engine
    boot_id: int
    boot_s: float


class Engines:
    """Boots and stops engines for ``plan``; everything is charged to ``budget``."""

    def __init__(
        self,
        plan: Plan,
        session: Session,
        budget: Budget,
        progress: RunProgress,
        stop: StopFlag,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan = plan
        self._session = session
        self._budget = budget
        self._progress = progress
        self._stop = stop
        self._clock = clock

    @contextmanager
    def boot(
        self, config: LaunchConfig, *, role: str, trial: int | None = None, kind: BootKind = "plain"
    ) -> Iterator[Running]:
        """A ready engine; raises ``BootFailed`` or ``EnvironmentFault``."""
        self._stop.check()
        boot_id, spec = self._write_down(config, role, trial, kind)
        started = self._clock()
        try:
            engine = boot(spec, hooks=self._hooks(config))
        except BootFailed as error:
            self._record_failure(boot_id, error.failure, error.boot_s)
            self._budget.charge_boot(self._clock() - started)
            raise
        try:
            self._record_ready(boot_id, engine.report)
            yield Running(engine, boot_id, engine.report.boot_s)
        finally:
            self._progress.now("stopping the engine")
            stopped = engine.stop()
            self._session.store.update_boot(boot_id, status="stopped", stop_s=stopped.stop_s)
            self._budget.charge_boot(engine.report.boot_s, stopped.stop_s)

    def record_failure(self, boot_id: int, failure: Failure) -> None:
        """Say why an engine that was ready gave no number."""
        self._session.store.add_failure(boot_id, _row(failure))

    def _write_down(self, config: LaunchConfig, role: str, trial: int | None, kind: BootKind) -> tuple[int, EngineSpec]:
        plan = self._plan
        log_path = plan.folder.logs / f"{int(time.time() * 1000)}-{role}-{config.key()}.log"
        boot_id = self._session.store.add_boot(
            NewBoot(
                run_id=self._session.run_id,
                role=role,
                kind=kind,
                config_key=config.key(),
                flags=dict(config.flags),
                env=dict(config.env),
                log_path=str(log_path),
                trial=trial,
            )
        )
        spec = EngineSpec(
            install=plan.install,
            model=plan.model.serve,
            config=config,
            fixed=plan.space.fixed,
            run_id=plan.study,
            log_path=log_path,
            cache_root=plan.folder.cache.resolve(),
            device=plan.device.gpu.uuid if plan.device.gpu else None,
        )
        return boot_id, spec

    def _hooks(self, config: LaunchConfig) -> BootHooks:
        return BootHooks(
            on_phase=lambda phase, elapsed_s: self._progress.now(f"booting ({phase}, {elapsed_s:.0f} s): {config}"),
            stop_requested=self._stop,
        )

    def _record_ready(self, boot_id: int, report: BootReport) -> None:
        facts = json.loads(json.dumps(asdict(report), default=str))
        self._session.store.update_boot(
            boot_id,
            status="ready",
            kind=report.kind,
            boot_s=report.boot_s,
            phases_s=dict(report.phases_s),
            facts={k: v for k, v in facts.items() if k not in ("phases_s", "kind", "boot_s")},
        )

    def _record_failure(self, boot_id: int, failure: Failure, boot_s: float) -> None:
        self._session.store.update_boot(boot_id, status="failed", boot_s=boot_s)
        self._session.store.add_failure(boot_id, _row(failure))


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
