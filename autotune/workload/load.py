"""From a name or a file to a workload: presets, the user's YAML, the user's requests, known traces.

``.csv`` and ``.jsonl`` files (also ``.gz``) are traces or requests (``traces``), all others workload files
(``files``).
"""

import re
from importlib.resources import files
from pathlib import Path

from autotune.errors import UsageError
from autotune.workload.types import Workload

TRACE_NAMES = re.compile(r"\.(csv|jsonl)(\.gz)?$")


def preset_names() -> tuple[str, ...]:
    """Names of the workloads that come with the program."""
    folder = files("autotune.workload") / "presets"
    return tuple(sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml")))


def load_workload(name_or_file: str) -> Workload:
    """A preset by name, or a workload, trace or request file by its path.

    Raises UsageError: unknown name (with the names there are), unreadable file, or file and line of a
    mistake.
    """
    from autotune.workload.files import parse_workload, read_text
    from autotune.workload.traces import read_trace

    if name_or_file in preset_names():
        text = (files("autotune.workload") / "presets" / f"{name_or_file}.yaml").read_text(encoding="utf-8")
        return parse_workload(text, name=name_or_file, source=f"preset {name_or_file}")
    path = Path(name_or_file)
    if not path.is_file():
        raise UsageError(
            f"there is no workload {name_or_file!r}, neither a preset nor a file; presets: {', '.join(preset_names())}"
        )
    if TRACE_NAMES.search(path.name):
        return read_trace(path)
    return parse_workload(read_text(path), name=path.stem, source=str(path))
