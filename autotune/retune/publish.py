"""Puts an adopted configuration where launchers read it, and keeps what was there.

Each file is replaced whole or not at all; the text it had before stays beside it as ``NAME.previous``. The
configuration itself (``retune/incumbent.json``) is written last: killed before that, the next run does all of it again.
``roll_back`` swaps each file with its ``.previous``, so that doing it twice changes nothing.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from autotune.errors import UsageError
from autotune.export.files import write_atomic
from autotune.export.formats import find_format
from autotune.export.options import ExportOptions
from autotune.export.registry import register
from autotune.export.study import ADOPTED, vllm_command
from autotune.store.recommendation import Recommendation

OWN = (("vllm", Path("best/vllm.yaml")), ("shell", Path("best/launch.sh")))
PREVIOUS = ".previous"


@dataclass(frozen=True, slots=True)
class Export:
    """A file that a launcher reads, and its format's name."""

    format: str
    path: Path


def parse_exports(texts: Iterable[str]) -> tuple[Export, ...]:
    """``FORMAT=FILE`` each. Raises ``UsageError`` for anything else."""
    found = []
    for text in texts:
        name, has_path, path = text.partition("=")
        if not has_path or not path:
            raise UsageError(f"--export {text!r} names no file. Write it like --export kubernetes=deploy.yaml.")
        find_format(name)
        found.append(Export(name, Path(path).expanduser().absolute()))
    return tuple(found)


def publish(
    root: Path, recommendation: Recommendation, before: Recommendation, python: Path, exports: Iterable[Export]
) -> list[Path]:
    """Write every file of the configuration; which were written. Raises ``UsageError``.

    ``before`` is what was in production; it becomes ``incumbent.json.previous`` where nothing was adopted before.
    """
    written = []
    for each in all_exports(root, exports):
        chosen = find_format(each.format)
        text = chosen.render(recommendation, ExportOptions(vllm=vllm_command(python)))
        keep_previous(each.path)
        write_atomic(each.path.resolve(), text, executable=chosen.executable)
        written.append(each.path)
    adopted = root / ADOPTED
    if adopted.exists():
        keep_previous(adopted)
    else:
        write_atomic(previous(adopted), _text(before, None))
    write_atomic(adopted, _text(recommendation, python))
    register(recommendation)
    return [*written, adopted]


def all_exports(root: Path, exports: Iterable[Export]) -> list[Export]:
    """The study's own files, where it has any, and those that the person named."""
    own = [Export(name, root / path) for name, path in OWN if (root / path).is_file()]
    return [*own, *exports]


def roll_back(root: Path, exports: Iterable[Export]) -> list[Path]:
    """Swap every file with what it was before. Raises ``UsageError`` where nothing was kept."""
    paths = [each.path for each in all_exports(root, exports)] + [root / ADOPTED]
    kept = [path for path in paths if previous(path).is_file()]
    if not kept:
        raise UsageError(f"nothing was adopted for {root}, so there is nothing to go back to.")
    for path in kept:
        _swap(path)
    return kept


def previous(path: Path) -> Path:
    """Where the text lies that a file had before."""
    return path.with_name(path.name + PREVIOUS)


def keep_previous(path: Path) -> None:
    """Copy a file to its ``.previous``, if it is there. Raises ``UsageError`` where it cannot."""
    target = path.resolve()
    try:
        text = target.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}. It is not replaced.") from error
    write_atomic(previous(path), text, executable=os.access(target, os.X_OK))


def _swap(path: Path) -> None:
    target, kept = path.resolve(), previous(path)
    older, executable = kept.read_text(encoding="utf-8"), os.access(kept, os.X_OK)
    if target.exists():
        write_atomic(kept, target.read_text(encoding="utf-8"), executable=executable)
    write_atomic(target, older, executable=executable)


def _text(recommendation: Recommendation, python: Path | None) -> str:
    """Read back by ``find_study``."""
    data = {
        "recommendation": recommendation.to_json(),
        "settings": {"vllm_python": None if python is None else str(python)},
    }
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"
