"""What is in production: the recommendation that a study, a registry entry or an earlier re-tune ended with.

Whatever re-tuning writes lies in ``ROOT/retune``, ROOT being the study's folder, or ``autotune-out/STUDY`` where only a
file or a registry entry is known:

    incumbent.json   the configuration adopted last, newer than the study itself (``incumbent.json.previous``: before)
    nights/STAMP/    one folder per run: database, report
    engines/VERSION/ logs and compile cache of one vLLM version
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.errors import UsageError
from autotune.export.registry import entries, registry_folder
from autotune.export.study import ADOPTED, DATABASE, STUDIES, find_study
from autotune.space.config import LaunchConfig
from autotune.store.recommendation import Recommendation

if TYPE_CHECKING:
    from autotune.store.models import BootRow, RunRow


@dataclass(frozen=True, slots=True)
class Earlier:
    """A configuration that the study measured, and what it gave in the objective's unit."""

    config: LaunchConfig
    value: float


@dataclass(frozen=True, slots=True)
class Incumbent:
    """``root`` is the folder that re-tuning writes below; ``earlier`` what the study measured, if it is there."""

    recommendation: Recommendation
    python: Path | None
    root: Path
    identity: Mapping[str, Any] = field(default_factory=dict)
    earlier: Sequence[Earlier] = ()

    @property
    def folder(self) -> Path:
        """Where everything of re-tuning lies."""
        return self.root / "retune"

    @property
    def workload(self) -> str:
        """Name of the workload that it was tuned for."""
        return str(self.identity.get("workload") or self.recommendation.provenance.workload.split(",")[0])

    @property
    def concurrency(self) -> int | None:
        """Requests in flight that it was tuned for, None where the record does not tell."""
        p = self.recommendation.provenance
        one_of_several = "/" in p.objective  # one aspect of pareto has a load of its own
        if "concurrency" in self.identity and not one_of_several:
            return int(self.identity["concurrency"])
        words = p.workload.partition(", ")[2].split()
        return int(words[0]) if words and words[0].isdigit() else None


def find_incumbent(study: str, storage: str | None = None, out: Path | None = None) -> Incumbent:
    """The configuration that ``study`` names. Raises ``UsageError`` where there is none that works."""
    place = _entry(study) or study
    found = find_study(str(place), storage)
    if not found.recommendation.recommends:
        raise UsageError(f"study {study} recommends nothing, so there is nothing to keep true. Finish its run first.")
    root = out or _root(str(place), found.recommendation)
    row = _row(root, study, storage)
    adopted = root / ADOPTED
    if adopted.is_file():
        found = find_study(str(adopted))
    identity = row.identity if row else {}
    earlier = _earlier(row, smaller_wins=found.recommendation.direction == "minimize")
    return Incumbent(found.recommendation, found.vllm_python, root.resolve(), identity, earlier)


def _entry(study: str) -> Path | None:
    """A registry entry by its name or by the name of the study behind it, where nothing else has that name."""
    if Path(study).expanduser().exists() or (STUDIES / study).exists():
        return None
    named = registry_folder() / f"{study.removesuffix('.json')}.json"
    if named.is_file():
        return named
    matches = [(r.provenance.measured_at, path) for path, r in entries() if r.provenance.study == study]
    return max(matches)[1] if matches else None


def _root(place: str, recommendation: Recommendation) -> Path:
    path = Path(place).expanduser()
    if path.is_dir():
        return path
    if path.is_file() and path.name == DATABASE:
        return path.parent
    return STUDIES / recommendation.provenance.study


def _row(root: Path, study: str, storage: str | None) -> "RunRow | None":
    """The study's record, where it can be reached: for its identity and its trials."""
    from autotune.store.lock import file_url
    from autotune.store.store import Store

    database = root / DATABASE
    if storage is None and not database.is_file():
        return None
    store = Store.open(storage or file_url(database))
    try:
        return store.run(study) if storage else next(iter(store.runs()), None)
    finally:
        store.close()


def _earlier(row: "RunRow | None", *, smaller_wins: bool) -> list[Earlier]:
    """What each configuration gave at its last boot without lowered limits, best first."""
    values: dict[str, Earlier] = {}
    for boot in row.boots if row else ():
        points = [p.value for p in boot.points if p.value is not None and not p.live]
        if boot.failure is None and points:
            values[boot.config_key] = Earlier(_config(boot), sum(points) / len(points))
    return sorted(values.values(), key=lambda e: e.value if smaller_wins else -e.value)


def _config(boot: "BootRow") -> LaunchConfig:
    return LaunchConfig.of(boot.flags, boot.env)
