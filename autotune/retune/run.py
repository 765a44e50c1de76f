"""``autotune retune`` as one function: what is there, what has changed, measure, decide, publish, report."""

import hashlib
import math
import shutil
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autotune import __version__
from autotune.engine.flags import FlagTable, load_flags
from autotune.engine.install import VllmInstall, resolve_install
from autotune.engine.reap import find_leftovers, reap
from autotune.errors import EnvironmentFault, Interrupted
from autotune.export.files import write_atomic
from autotune.report.progress import RunProgress, run_progress
from autotune.retune.arms import Visits
from autotune.retune.deadline import Deadline
from autotune.retune.incumbent import Incumbent, find_incumbent
from autotune.retune.migrate import Migration, migrate
from autotune.retune.night import DEFAULT, NEW, Evidence, Night, Question, old_study, search_study
from autotune.retune.plans import RetuneSettings, engine_folder, new_plan, old_install, published, refuse_another_device
from autotune.retune.priors import Priors, find_priors
from autotune.retune.publish import publish
from autotune.retune.report import Report
from autotune.retune.unchanged import look_again
from autotune.retune.verdict import Decision, decide
from autotune.search.noise import PRIOR
from autotune.store.recommendation import Interval, Recommendation
from autotune.store.store import Store
from autotune.tuner.faults import named_faults
from autotune.tuner.folder import StudyFolder
from autotune.tuner.plan import Plan
from autotune.tuner.racers import as_change
from autotune.tuner.recommend import provenance
from autotune.tuner.run import clear_the_ground
from autotune.tuner.stop import StopFlag

KEPT_NIGHTS = 14
HALF_INTERVAL = 0.025


def retune(settings: RetuneSettings, started: datetime | None = None) -> Report:
    """Compare the vLLM installed now with the one that was tuned, and act on it.

    Raises ``UsageError`` for bad input, ``Interrupted`` where a person stopped it. A machine that is at fault leaves
    the question open: the verdict is ``undecided`` then.
    """
    started = started or datetime.now(UTC)
    stop = StopFlag()
    # Reading flags, files and the machine takes time as well.
    deadline = Deadline(settings.budget_s, stop)
    incumbent = find_incumbent(settings.study, settings.storage, settings.out)
    case = Case.look(incumbent, settings, started)
    case.folder.root.mkdir(parents=True, exist_ok=True)
    locked = StudyFolder(incumbent.folder).locked()
    with named_faults(), locked, stop.on_signals(), deadline.enforced(), run_progress() as progress:
        report = case.run(progress, stop, deadline)
    write_atomic(case.folder.root / "report.json", report_text(report))
    _forget_old_nights(incumbent.folder / "nights")
    return report


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """All that is known before the first boot. ``old`` is None where the old version cannot be booted any more."""

    incumbent: Incumbent
    settings: RetuneSettings
    plan: Plan
    old: VllmInstall | None
    migration: Migration
    fixed: Migration
    table: FlagTable
    before: FlagTable
    folder: StudyFolder
    started: datetime

    @classmethod
    def look(cls, incumbent: Incumbent, settings: RetuneSettings, started: datetime) -> "Case":
        """Read everything; nothing is started. Raises ``UsageError``."""
        new = resolve_install(settings.new_python)
        old = old_install(incumbent, settings)
        table = load_flags(new)
        before = load_flags(old) if old else published(incumbent.recommendation.provenance.vllm_version)
        fixed = migrate(incumbent.recommendation.fixed, table)
        folder = StudyFolder(incumbent.folder / "nights" / started.strftime("%Y-%m-%dT%H%M%S"))
        plan = new_plan(incumbent, settings, new, fixed.config, folder)
        refuse_another_device(incumbent, plan)
        migration = migrate(incumbent.recommendation.config, table)
        return cls(
            incumbent=incumbent,
            settings=settings,
            plan=plan,
            old=old,
            migration=migration,
            fixed=fixed,
            table=table,
            before=before,
            folder=folder,
            started=started,
        )

    @property
    def unchanged(self) -> bool:
        """The same vLLM, model, driver and machine as when the incumbent was adopted, and no other vLLM was named."""
        p = self.incumbent.recommendation.provenance
        same_place = self.old is None or self.old.package_dir.resolve() == self.plan.install.package_dir.resolve()
        return same_place and (p.vllm_version, p.model_revision, p.host_fingerprint) == (
            self.plan.install.version,
            self.plan.model.revision,
            self.plan.host.fingerprint(),
        )

    def run(self, progress: RunProgress, stop: StopFlag, deadline: Deadline) -> Report:
        """Measure and decide."""
        for study in (old_study(self.plan), search_study(self.plan)):
            reap(find_leftovers(study))
        for line in (*self._headline(), *clear_the_ground(self.plan)):
            progress.note(line)
        store = Store.open(self.plan.storage)
        visits = Visits(deadline, progress, self.plan.objective.unit, _seed(self.started))
        try:
            if self.unchanged:
                return look_again(self.plan, self.incumbent, store, progress, stop, visits, self._report)
            return self._compare(store, progress, stop, deadline, visits)
        finally:
            store.close()

    def _compare(
        self, store: Store, progress: RunProgress, stop: StopFlag, deadline: Deadline, visits: Visits
    ) -> Report:
        priors = self._priors()
        question = Question(
            new=self.plan,
            old=self._old_plan(),
            before=self.incumbent.recommendation.config,
            after=self.migration.config,
            seeds=priors.seeds,
            noise=PRIOR,
            search=self.settings.search,
        )
        sign = 1.0 if self.plan.objective.direction == "maximize" else -1.0
        night = Night(question, store, progress, stop, deadline, visits, sign=sign)
        night.evidence.notes += priors.notes
        try:
            night.run()
        except Interrupted:
            if not deadline.hit:
                raise
            night.evidence.notes.append("The time was over before all was measured.")
        except EnvironmentFault as error:
            night.evidence.notes.append(f"The machine was at fault: {error}")
        decision = decide(night.evidence, self.incumbent.recommendation.best)
        return self._concluded(night.evidence, decision, visits)

    def _concluded(self, evidence: Evidence, decision: Decision, visits: Visits) -> Report:
        adopted = self._recommendation(evidence, decision)
        exported: tuple[str, ...] = ()
        if adopted is not None:
            paths = publish(
                self.incumbent.root,
                adopted,
                self.incumbent.recommendation,
                self.plan.install.python,
                self.settings.exports,
            )
            exported = tuple(str(path) for path in paths)
        upgrade, confirmed = evidence.upgrade, evidence.confirmed
        values = {name: upgrade.value(name) for name in upgrade.arms if upgrade.rounds}
        if confirmed is not None and confirmed.rounds:
            values |= {f"{name} (confirmation)": confirmed.value(name) for name in confirmed.arms}
        return self._report(
            verdict=decision.verdict,
            reasons=decision.reasons,
            notes=tuple(evidence.notes),
            change=decision.change,
            values=values,
            adopted=adopted.launch if adopted else None,
            rounds=upgrade.rounds,
            boots=visits.boots,
            spent_s=round(visits.deadline.spent_s, 1),
            exported=exported,
        )

    def _report(self, **found: Any) -> Report:
        p = self.incumbent.recommendation.provenance
        return Report(
            study=p.study,
            started_at=self.started.strftime("%Y-%m-%d %H:%M UTC"),
            unit=self.plan.objective.unit,
            vllm_old=self.old.version if self.old else p.vllm_version,
            vllm_new=self.plan.install.version,
            migration=tuple(change.text for change in (*self.fixed.changes, *self.migration.changes)),
            budget_s=self.settings.budget_s,
            folder=str(self.folder.root),
            **found,
        )

    def _recommendation(self, evidence: Evidence, decision: Decision) -> Recommendation | None:
        """What to export: the winner; for ``equal`` the incumbent, where the old files would not start any more."""
        winner = decision.winner
        if winner is None and decision.verdict == "equal" and not (self.migration.same and self.fixed.same):
            winner = NEW
        if winner is None:
            return None
        comparison = evidence.upgrade
        if evidence.confirmed is not None and winner in evidence.confirmed.arms:
            comparison = evidence.confirmed
        own = comparison.half_width(HALF_INTERVAL) / math.sqrt(2)
        value = comparison.value(winner)
        gain = comparison.contrast(winner, DEFAULT) if DEFAULT in comparison.arms and winner != DEFAULT else None
        base = comparison.value(DEFAULT) if DEFAULT in comparison.arms else None
        config = evidence.arms[winner]
        return replace(
            self.incumbent.recommendation,
            verdict="adopt" if config.flags or config.env else "keep-default",
            config=config,
            fixed=self.plan.space.fixed,
            baseline=None if base is None else Interval.around(base, own),
            best=Interval.around(value, own),
            gain=None if gain is None else as_change(self.plan.objective.direction, gain.gain, gain.low, gain.high),
            reasons=decision.reasons,
            racers=(),
            parts=(),
            soak=None,
            boot_s=evidence.boot_s.get(winner, self.incumbent.recommendation.boot_s),
            provenance=replace(
                provenance(self.plan),
                study=self.incumbent.recommendation.provenance.study,
                autotune_version=__version__,
            ),
        )

    def _old_plan(self) -> Plan | None:
        """The old version's plan; where only driver, host or model have changed, the record stands for the old side."""
        if self.old is None or self.old.package_dir.resolve() == self.plan.install.package_dir.resolve():
            return None
        return replace(
            self.plan,
            study=old_study(self.plan),
            install=self.old,
            folder=engine_folder(self.incumbent, self.old, "old"),
            space=replace(self.plan.space, fixed=self.incumbent.recommendation.fixed),
        )

    def _priors(self) -> Priors:
        names = [parameter.name for parameter in self.plan.space.parameters]
        return find_priors(self.incumbent.earlier, names, self.incumbent.recommendation.config, self.before, self.table)

    def _headline(self) -> list[str]:
        p, new = self.incumbent.recommendation.provenance, self.plan.install
        old = (
            f"{self.old.version} in {self.old.python}" if self.old else f"{p.vllm_version}, which is not here any more"
        )
        return [
            f"Re-tuning {p.study} of {p.measured_at}: vLLM {old} against {new.version} in {new.python}.",
            f"Incumbent: {self.incumbent.recommendation.config}. Time: {self.settings.budget_s:.0f} s.",
            *(change.text for change in (*self.fixed.changes, *self.migration.changes)),
            *(["Nothing has changed since: one look is enough."] if self.unchanged else []),
        ]


def _forget_old_nights(folder: Path) -> None:
    for path in sorted(folder.glob("*"))[:-KEPT_NIGHTS]:
        shutil.rmtree(path, ignore_errors=True)


def _seed(started: datetime) -> int:
    """Prompts that no other night and no study has used."""
    return 500_000_000 + int(hashlib.sha256(started.isoformat().encode()).hexdigest(), 16) % 4_000_000 * 100


def report_text(report: Report) -> str:
    """The report as JSON text."""
    import orjson

    return orjson.dumps(report.to_json(), option=orjson.OPT_INDENT_2, default=str).decode() + "\n"
