"""Which vLLM is installed, and in which Python.

vLLM lives in its own Python, so the tuner asks that Python instead of importing anything.
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class VllmInstall:
    """One vLLM: the Python that runs it, its version and distribution, and where its sources lie.

    ``problems`` holds known faults of the installation, each with its cure; a fault there means that engines will
    not start before it is cured.
    """

    python: Path
    version: str
    dist_name: str
    package_dir: Path
    problems: tuple[str, ...] = ()


def find_installs(extra: Path | None = None) -> list[VllmInstall]:
    """Every vLLM that can be found; ``extra`` is looked at first."""
    raise NotImplementedError


def resolve_install(python: Path | None = None) -> VllmInstall:
    """The vLLM to use. Raises ``UsageError`` where there is none."""
    raise NotImplementedError
