"""Finds the recommendation that is to be exported, and writes the file.

STUDY is a study's folder, its database, a JSON file that holds a recommendation, or a name: with a storage the
name of a study in it, without one a folder below ``autotune-out``.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.errors import UsageError
from autotune.export.files import write_atomic
from autotune.store.recommendation import Recommendation

if TYPE_CHECKING:
    from autotune.store.models import RunRow

STUDIES = Path("autotune-out")
DATABASE = "study.db"
RESULT = Path("best/result.json")
# What `autotune retune` adopted last is newer than the study itself.
ADOPTED = Path("retune/incumbent.json")


@dataclass(frozen=True, slots=True)
class Finished:
    """A study's recommendation, and the Python whose vLLM was measured where the record names one."""

    recommendation: Recommendation
    vllm_python: Path | None = None


def find_study(study: str, storage: str | None = None) -> Finished:
    """The study that ``study`` names. Raises ``UsageError`` where it has no recommendation, ``StoreError``."""
    if storage is not None:
        return _from_storage(storage, study)
    path = Path(study).expanduser()
    if not path.exists() and path.name == study:
        path = STUDIES / study
    if path.is_dir():
        return _from_folder(path)
    if not path.is_file():
        raise UsageError(f"there is no study {study}. Give its folder, its {DATABASE}, or its name with --storage.")
    if path.suffix == ".json":
        return _from_json(path)
    return _from_storage(_url(path), None)


def vllm_command(python: Path | None) -> str:
    """The ``vllm`` script beside a Python, or the bare name where there is none."""
    if python is None:
        return "vllm"
    python = python.expanduser()
    folder = python / "bin" if python.is_dir() else python.parent
    script = folder.absolute() / "vllm"
    return str(script) if os.access(script, os.X_OK) else "vllm"


def _from_json(path: Path) -> Finished:
    """An export, a registry entry or a ``result.json``."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        recommendation = Recommendation.from_json(data.get("recommendation", data))
        return Finished(recommendation, _python(data.get("settings", {})))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path} holds no recommendation: {error}. Give a file that autotune wrote.") from error


def save(path: Path, text: str, *, executable: bool, force: bool) -> bool:
    """Write the export; whether anything changed. Raises ``UsageError`` for another file that is in the way.

    A symbolic link stays one: the file that it leads to is written.
    """
    target = path.resolve()
    if target.exists() and not target.is_file():
        raise UsageError(f"{path} is no file. Give a file name, or -o - for standard output.")
    if _holds(target, text):
        return False
    if target.exists() and not force:
        raise UsageError(f"{path} exists and differs. Give --force to replace it, or another file with -o.")
    write_atomic(target, text, executable=executable)
    return True


def _holds(path: Path, text: str) -> bool:
    try:
        return path.read_text(encoding="utf-8") == text
    except (OSError, UnicodeDecodeError):
        return False


def _from_folder(folder: Path) -> Finished:
    if (folder / ADOPTED).is_file():
        return _from_json(folder / ADOPTED)
    if (folder / DATABASE).is_file():
        return _from_storage(_url(folder / DATABASE), None)
    if (folder / RESULT).is_file():
        return _from_json(folder / RESULT)
    raise UsageError(f"{folder} holds neither {DATABASE} nor {RESULT}, so it is no study. Give the folder of a run.")


def _from_storage(url: str, study: str | None) -> Finished:
    from autotune.store.store import Store

    _refuse_missing(url)
    store = Store.open(url)
    try:
        if study is None:
            return _only(store.runs(), url)
        row = store.run(study)
    finally:
        store.close()
    if row is None:
        raise UsageError(f"there is no study {study} in the storage. See the name in the run's first lines.")
    return _of(row)


def _refuse_missing(url: str) -> None:
    """Opening a SQLite database that is not there would create it."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        parsed = make_url(url)
    except ArgumentError:
        return  # the store says what is wrong with it
    if parsed.get_backend_name() == "sqlite" and not Path(parsed.database or "").is_file():
        raise UsageError(f"there is no database {parsed.database}. Give the --storage of the run.")


def _only(rows: "list[RunRow]", url: str) -> Finished:
    if not rows:
        raise UsageError(f"{url} holds no study. Give the database of a run.")
    if len(rows) > 1:
        names = ", ".join(row.study for row in rows[:5])
        raise UsageError(f"{url} holds {len(rows)} studies ({names}). Name one: autotune export NAME --storage {url}.")
    return _of(rows[0])


def _of(row: "RunRow") -> Finished:
    result: dict[str, Any] = row.result or {}
    if "recommendation" not in result:
        raise UsageError(
            f"study {row.study} has no recommendation yet: its run is {row.status}. "
            "Give the same `autotune run` again to finish it."
        )
    try:
        return Finished(Recommendation.from_json(result["recommendation"]), _python(row.settings))
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"study {row.study} was written by another version of autotune: {error}.") from error


def _python(settings: Mapping[str, Any]) -> Path | None:
    python = settings.get("vllm_python")
    return Path(python) if python else None


def _url(path: Path) -> str:
    from autotune.store.lock import file_url

    return file_url(path)
