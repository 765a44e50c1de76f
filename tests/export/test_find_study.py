import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from recommendations import CPU, DEFAULTS, FOLDER, HUB, NOTHING

from autotune.cli.main import run_command
from autotune.errors import UsageError
from autotune.export.formats import FORMATS
from autotune.export.study import find_study, save, vllm_command
from autotune.store.recommendation import Recommendation
from autotune.store.store import Store


def write_study(url: str, name: str, recommendation: Recommendation | None, python: str = "/v/bin/python") -> None:
    store = Store.open(url)
    host_id = store.record_host("f00d", {})
    run_id = store.start_run(name, host_id, {}, {"vllm_python": python})
    if recommendation is not None:
        store.update_run(run_id, status="finished", result={"recommendation": recommendation.to_json()})
    store.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "study").mkdir()
    write_study(f"sqlite:///{tmp_path}/study/study.db", "s", FOLDER)
    return tmp_path / "study"


def test_a_study_is_its_folder_its_database_or_its_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = folder / "study.db"
    assert find_study(str(folder)).recommendation == FOLDER
    assert find_study(str(database)).recommendation == FOLDER
    assert find_study("s", f"sqlite:///{database}").recommendation == FOLDER
    assert find_study(str(folder)).vllm_python == Path("/v/bin/python")
    monkeypatch.chdir(folder.parent)
    folder.rename("autotune-out")
    Path("autotune-out").rename("moved")
    Path("autotune-out").mkdir()
    Path("moved").rename("autotune-out/s")
    assert find_study("s").recommendation == FOLDER


def test_a_study_in_another_storage_is_found_by_its_result(tmp_path: Path) -> None:
    (tmp_path / "best").mkdir()
    result = {"recommendation": CPU.to_json(), "settings": {"vllm_python": "/w/bin/python"}}
    (tmp_path / "best/result.json").write_text(json.dumps(result))
    assert find_study(str(tmp_path)).recommendation == CPU
    assert find_study(str(tmp_path / "best/result.json")).vllm_python == Path("/w/bin/python")


def test_an_export_as_json_can_be_exported_again(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(FORMATS["json"].render(HUB))
    assert find_study(str(tmp_path / "r.json")).recommendation == HUB


@pytest.mark.parametrize(
    ("study", "storage", "message"),
    [
        ("nowhere", None, "there is no study nowhere"),
        ("other", "sqlite:///{root}/study/study.db", "there is no study other in the storage"),
        ("s", "sqlite:///{root}/none.db", "there is no database .*none.db"),
        ("{root}", None, "holds neither study.db nor best/result.json"),
        ("{root}/text.json", None, "holds no recommendation"),
        ("{root}/text.db", None, "cannot open the storage"),
    ],
)
def test_what_is_no_study_is_a_usage_error(folder: Path, study: str, storage: str | None, message: str) -> None:
    root = folder.parent
    (root / "text.json").write_text('{"a": 1}')
    (root / "text.db").write_text("not a database, but long enough to be looked at by SQLite " * 20)
    given = storage.format(root=root) if storage else None
    with pytest.raises(UsageError, match=message):
        find_study(study.format(root=root), given)
    assert not (root / "none.db").exists()


def test_an_unfinished_study_is_refused(tmp_path: Path) -> None:
    write_study(f"sqlite:///{tmp_path}/study.db", "s", None)
    with pytest.raises(UsageError, match="no recommendation yet: its run is running"):
        find_study(str(tmp_path))


def test_a_database_with_several_studies_asks_for_the_name(folder: Path) -> None:
    write_study(f"sqlite:///{folder}/study.db", "t", HUB)
    with pytest.raises(UsageError, match=r"holds 2 studies \(t, s\)"):
        find_study(str(folder))
    assert find_study("t", f"sqlite:///{folder}/study.db").recommendation == HUB


def test_the_vllm_beside_the_measured_python_is_started(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    assert vllm_command(tmp_path / "bin/python") == "vllm"
    (tmp_path / "bin/vllm").touch(mode=0o755)
    assert vllm_command(tmp_path / "bin/python") == vllm_command(tmp_path) == str(tmp_path / "bin/vllm")
    assert vllm_command(None) == "vllm"


def export(*words: str) -> int:
    return run_command(["export", *words])


def test_export_writes_the_file_and_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = folder.parent / "deep/er/launch.sh"
    assert export(str(folder), "--format", "shell", "-o", str(target)) == 0
    assert target.read_text() == FORMATS["shell"].render(FOLDER)
    assert os.access(target, os.X_OK)
    assert capsys.readouterr().err == f"Wrote {target}\n"


def test_export_to_standard_output_is_the_text_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export(str(folder), "-f", "env", "-o", "-") == 0
    assert capsys.readouterr().out == FORMATS["env"].render(FOLDER)


def test_export_without_a_name_uses_the_formats_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    assert export("study", "--format", "compose") == 0
    assert (folder.parent / "compose.yaml").is_file()


def test_a_file_that_differs_is_replaced_only_by_force(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = folder.parent / "vllm.yaml"
    target.write_text("mine: true\n")
    assert export(str(folder), "-o", str(target)) == 2
    assert target.read_text() == "mine: true\n"
    assert "exists and differs. Give --force" in capsys.readouterr().err
    assert export(str(folder), "-o", str(target), "--force") == 0
    assert export(str(folder), "-o", str(target)) == 0  # the same again is no conflict
    assert "Unchanged" in capsys.readouterr().err


@pytest.mark.parametrize("output", ["/proc/none/x", "{root}", "/dev/null", "{root}/file/x"])
def test_a_place_that_cannot_be_written_ends_with_two(
    folder: Path, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder.parent / "file").touch()
    assert export(str(folder), "-o", output.format(root=folder.parent)) == 2
    assert 1 <= len(capsys.readouterr().err.splitlines()) <= 2
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize("arguments", [["nowhere"], ["{root}", "-f", "nomad"], ["{root}", "--image", "x:1"], []])
def test_bad_input_ends_with_two_and_a_line_or_two(
    folder: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert export(*(word.format(root=folder) for word in arguments)) == 2
    assert 1 <= len(capsys.readouterr().err.splitlines()) <= 2


def test_the_verdicts_without_a_winner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, recommendation in (("default", DEFAULTS), ("nothing", NOTHING)):
        (tmp_path / name).mkdir()
        write_study(f"sqlite:///{tmp_path}/{name}/study.db", name, recommendation)
    assert export(str(tmp_path / "default"), "-o", "-") == 0
    assert "No configuration was proven better" in capsys.readouterr().err
    assert export(str(tmp_path / "nothing"), "-o", "-") == 2


def test_a_link_stays_a_link(folder: Path) -> None:
    real, link = folder.parent / "real.yaml", folder.parent / "link.yaml"
    real.write_text("old\n")
    link.symlink_to(real)
    assert save(link, "new\n", executable=False, force=True)
    assert link.is_symlink() and real.read_text() == "new\n"


WRITER = """
import sys
from pathlib import Path
from autotune.export.study import save
texts = ["a" * 400_000, "b" * 400_000]
print("ready", flush=True)
for turn in range(10**6):
    save(Path(sys.argv[1]), texts[turn % 2], executable=False, force=True)
"""


def test_a_killed_export_leaves_a_whole_file(tmp_path: Path) -> None:
    target, moments = tmp_path / "x.yaml", random.Random(1)
    seen = set()
    for _ in range(12):
        with subprocess.Popen([sys.executable, "-c", WRITER, target], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None and writer.stdout.readline() == b"ready\n"
            time.sleep(moments.uniform(0.005, 0.05))
            writer.send_signal(signal.SIGKILL)
        if target.exists():
            text = target.read_text()
            assert len(text) == 400_000 and len(set(text)) == 1
            seen.add(text[0])
    assert seen


def test_an_old_record_is_refused_with_its_reason(tmp_path: Path) -> None:
    old: dict[str, Any] = {**FOLDER.to_json(), "schema_version": 99}
    (tmp_path / "old.json").write_text(json.dumps(old))
    with pytest.raises(UsageError, match="schema_version 99"):
        find_study(str(tmp_path / "old.json"))


def test_the_unit_starts_the_vllm_of_the_study(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/vllm").touch(mode=0o755)
    write_study(f"sqlite:///{tmp_path}/study.db", "s", replace(CPU), python=str(tmp_path / "bin/python"))
    assert export(str(tmp_path), "-f", "systemd", "-o", str(tmp_path / "x.service")) == 0
    assert f'"VLLM={tmp_path}/bin/vllm"' in (tmp_path / "x.service").read_text()
