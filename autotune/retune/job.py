"""From what a person asks of ``autotune schedule`` to the exact nightly command."""

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from autotune.engine.install import resolve_install
from autotune.export.serving import serving
from autotune.retune.incumbent import find_incumbent
from autotune.retune.nightly import Window
from autotune.retune.publish import parse_exports
from autotune.retune.schedule import Job


def make_job(
    study: str,
    window: str,
    *,
    notify: str | None,
    exports: Iterable[str],
    new_python: Path | None,
    old_python: Path | None,
    gpu: str,
    more: Iterable[str],
    inside_container: bool,
) -> tuple[Job, int]:
    """The job, and how many GPUs its engine takes. Raises ``UsageError`` for anything that would fail every night.

    On a host the Python of vLLM is looked up now and written down, for at night there is no PATH to find it by.
    """
    incumbent = find_incumbent(study)
    words = [] if inside_container else ["--new-python", str(resolve_install(new_python).python)]
    if old_python is not None:
        words += ["--old-python", str(resolve_install(old_python).python)]
    for export in parse_exports(exports):
        words += ["--export", f"{export.format}={export.path}"]
    words += ["--gpu", gpu] if gpu != "auto" else []
    words += ["--notify", notify] if notify is not None else []
    s = serving(incumbent.recommendation)
    name = re.sub(r"[^a-z0-9]+", "-", f"autotune-retune-{incumbent.recommendation.provenance.study}".lower())[:50]
    job = Job(
        name=name.strip("-"),
        study=str(incumbent.root if (incumbent.root / "best").is_dir() else Path(study).expanduser().absolute()),
        window=Window.parse(window),
        arguments=(*words, *more),
        python=sys.executable,
    )
    return job, s.gpus
