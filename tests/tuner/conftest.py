"""No test of a study sees what another one registered: the last winner here is what a study tries first."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A data folder for each test."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data-home"))
