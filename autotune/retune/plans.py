"""The two vLLM versions of a re-tune, each as a plan: the same question, workload and machine.

Compile caches are kept by version and by place: an upgrade starts with an empty one, no version ever reads another's,
and those that are neither in use nor the one before are deleted. Memory models start anew with every re-tune.
"""

import hashlib
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.engine.flags import FlagTable
from autotune.engine.install import VllmInstall, resolve_install
from autotune.engine.releases import load_releases
from autotune.errors import UsageError
from autotune.retune.incumbent import Incumbent
from autotune.retune.publish import Export
from autotune.space.config import LaunchConfig
from autotune.tuner.folder import StudyFolder
from autotune.tuner.objectives import asked_before
from autotune.tuner.plan import Plan
from autotune.tuner.prepare import prepare
from autotune.tuner.settings import RunSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class RetuneSettings:
    """One re-tune as asked for; ``None`` means what the study's record says. Times in seconds."""

    study: str
    storage: str | None = None
    out: Path | None = None
    old_python: Path | None = None
    new_python: Path | None = None
    gpu: str = "auto"
    space: str = "auto"
    workload: str | None = None
    concurrency: int | None = None
    window_s: float | None = None
    budget_s: float = 3600.0
    search: bool = True
    exports: tuple[Export, ...] = ()


def old_install(incumbent: Incumbent, settings: RetuneSettings) -> VllmInstall | None:
    """The old version, where it can still be booted: named, or recorded and not replaced in its place."""
    if settings.old_python is not None:
        return resolve_install(settings.old_python)
    if incumbent.python is None:
        return None
    try:
        recorded = resolve_install(incumbent.python)
    except UsageError:
        return None
    return recorded if recorded.version == incumbent.recommendation.provenance.vllm_version else None


def published(version: str) -> FlagTable:
    """The flags of a version that is not installed; an older or unknown one counts as the new one's twin."""
    releases = load_releases()
    try:
        return releases.table(releases.nearest(version))
    except UsageError:
        return releases.table(releases.versions[-1])


def new_plan(
    incumbent: Incumbent, settings: RetuneSettings, new: VllmInstall, fixed: LaunchConfig, night: StudyFolder
) -> Plan:
    """The new version's plan. Raises ``UsageError``.

    ``fixed``, the incumbent's own fixed flags, takes the place of what the space would fix today: both versions are to
    be given the same.
    """
    p = incumbent.recommendation.provenance
    asked = asked_before(p.objective)
    plan = prepare(
        RunSettings(
            model=p.model,
            gpu=settings.gpu,
            space=settings.space,
            objective=asked.objective,
            slos=asked.slos,
            rate_per_s=asked.rate_per_s,
            price_per_hour=asked.price_per_hour,
            workload=settings.workload or incumbent.workload,
            concurrency=settings.concurrency or incumbent.concurrency,
            window_s=settings.window_s,
            budget_s=settings.budget_s,
            vllm_python=new.python,
            study=f"{p.study}-retune",
            out=night.root,
        )
    )
    free = tuple(p for p in plan.space.parameters if fixed.get(p.name) is None)
    return replace(
        plan,
        folder=engine_folder(incumbent, new, "new"),
        storage=night.default_storage,
        space=replace(plan.space, fixed=fixed, parameters=free or plan.space.parameters),
    )


def engine_folder(incumbent: Incumbent, install: VllmInstall, side: str) -> StudyFolder:
    """Logs and compile cache of one vLLM; an upgrade starts with an empty cache, and no other version ever reads it."""
    where = hashlib.sha256(str(install.package_dir.resolve()).encode()).hexdigest()[:8]
    folder = StudyFolder(incumbent.folder / "engines" / f"{install.version}-{where}")
    if side == "new":
        _forget_other_engines(folder.root)
    folder.create()
    return folder


def _forget_other_engines(current: Path) -> None:
    """Drop what versions left that are neither the newest used now nor the one used before it."""
    others = sorted(
        (path for path in current.parent.glob("*") if path != current), key=lambda path: path.stat().st_mtime
    )
    for path in others[:-1]:
        shutil.rmtree(path, ignore_errors=True)


def refuse_another_device(incumbent: Incumbent, plan: Plan) -> None:
    """Raise ``UsageError`` where the incumbent was tuned on another device."""
    tuned = incumbent.recommendation.provenance.device
    if tuned != plan.device.name:
        raise UsageError(
            f"{incumbent.recommendation.provenance.study} was tuned on {tuned}, and this is {plan.device.name}: "
            "numbers of two devices do not compare. Start a new study with `autotune run`."
        )
