"""Where the search spaces lie.

They stand at the top of the repository, where people look for them; ``autotune/search_spaces`` is a link to
that folder, so that a wheel carries the files inside the package. A checkout on a file system without links
has a small text file in its place, and the folder itself is taken.
"""

from pathlib import Path

from autotune.errors import EnvironmentFault

_PACKAGE = Path(__file__).resolve().parent.parent


def space_files() -> dict[str, Path]:
    """The search space files that came with this installation: name without ``.yaml`` -> path, sorted by name."""
    for folder in (_PACKAGE / "search_spaces", _PACKAGE.parent / "search_spaces"):
        if files := sorted(folder.glob("*.yaml")):
            return {file.stem: file for file in files}
    raise EnvironmentFault(f"No search spaces beside {_PACKAGE}: the installation is damaged.\nInstall it again.")
