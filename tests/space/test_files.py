from pathlib import Path

import pytest

from autotune.errors import EnvironmentFault
from autotune.space import files


def spaces_in(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_text("")
    return folder


def test_finds_the_repository_files() -> None:
    repository = Path(__file__).parents[2] / "search_spaces"
    found = files.space_files()
    assert list(found) == sorted(path.stem for path in repository.glob("*.yaml"))
    assert {"cpu", "default"} <= found.keys()
    assert all(path.is_file() for path in found.values())


def test_only_yaml_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_PACKAGE", tmp_path / "autotune")
    spaces_in(tmp_path / "autotune" / "search_spaces", "l4.yaml", "a100-80g.yaml", "README.md")
    assert list(files.space_files()) == ["a100-80g", "l4"]


def test_a_checkout_whose_link_became_a_text_file_still_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "autotune").mkdir()
    (tmp_path / "autotune" / "search_spaces").write_text("../search_spaces")
    spaces_in(tmp_path / "search_spaces", "cpu.yaml")
    monkeypatch.setattr(files, "_PACKAGE", tmp_path / "autotune")
    assert files.space_files() == {"cpu": tmp_path / "search_spaces" / "cpu.yaml"}


def test_a_damaged_installation_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_PACKAGE", tmp_path / "autotune")
    with pytest.raises(EnvironmentFault, match="damaged"):
        files.space_files()
