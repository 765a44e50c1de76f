"""Whole studies on the stand-in for vLLM: what is found, what a failure does, and what a stop leaves behind."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_vllm import make_fake_python, set_behaviour

from autotune.engine.demo_model import write_demo_model

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.timeout(240)

SPACE = """
schema: 1
name: stand-in
parameters:
  max-num-seqs: {values: [2, 8, 32, default], scope: live, ordered: true, why: "limits the batch"}
  stream-interval: {values: [default, 4], why: "does nothing here"}
seeds:
  - {name: poor, flags: {max-num-seqs: 2}, why: "two requests at a time"}
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def python(tmp_path: Path) -> Path:
    return make_fake_python(tmp_path / "venv")


@pytest.fixture
def command(tmp_path: Path, python: Path) -> list[str]:
    (tmp_path / "space.yaml").write_text(SPACE)
    words = ["run", "--gpu", "cpu", "--space", "space.yaml", "--out", "out", "--window", "0.5s", "--study", "s"]
    return [sys.executable, "-m", "autotune", *words, "--vllm-python", str(python)]


def finish(command: list[str], folder: Path, *more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*command, *more], cwd=folder, capture_output=True, text=True, timeout=200, check=False)


def result(folder: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((folder / "out/best/result.json").read_text())
    return data


def test_a_study_ends_with_files_and_a_verdict_on_fresh_engines(command: list[str], tmp_path: Path) -> None:
    done = finish(command, tmp_path, "--trials", "3", "--json")
    assert done.returncode == 0, done.stderr
    found = result(tmp_path)
    assert json.loads(done.stdout) == found["recommendation"]
    assert {p.name for p in (tmp_path / "out/best").iterdir()} == {"vllm.yaml", "launch.sh", "result.json"}
    roles = [t["role"] for t in found["trials"]]
    assert roles[0] == "baseline" and len(found["trials"][0]["points"]) == 3
    assert {t["status"] for t in found["trials"]} == {"stopped"}
    seeds = [p["prompt_seed"] for t in found["trials"] if t["role"] != "final" for p in t["points"]]
    assert len(seeds) == len(set(seeds))


def test_a_configuration_that_cannot_run_is_infeasible_and_never_a_number(
    command: list[str], tmp_path: Path, python: Path
) -> None:
    set_behaviour(python, {"rules": [{"when": {"max-num-seqs": 2}, "fail": "kv_cache_too_small"}]})
    done = finish(command, tmp_path, "--trials", "2")
    assert done.returncode == 0, done.stderr
    failed = [t for t in result(tmp_path)["trials"] if t["failure"]]
    assert [t["failure"]["class"] for t in failed] == ["kv_cache_too_small"] and failed[0]["points"] == []

    import optuna

    trials = optuna.load_study(study_name="s", storage=f"sqlite:///{tmp_path}/out/study.db").trials
    assert all(t.state is optuna.trial.TrialState.COMPLETE for t in trials)
    told = next(t for t in trials if t.user_attrs["constraints"]["starts"] > 0)
    assert told.constraints["starts"] > 0 and told.value == min(t.value for t in trials)


def test_a_broken_machine_stops_the_study_at_once_with_one_cause(
    command: list[str], tmp_path: Path, python: Path
) -> None:
    set_behaviour(python, {"fail": "broken_install"})
    done = finish(command, tmp_path, "--trials", "5")
    assert done.returncode == 3 and "Traceback" not in done.stderr
    assert count(tmp_path, "autotune_boot") == 1


def test_the_machine_failing_twice_alike_ends_the_study(command: list[str], tmp_path: Path, python: Path) -> None:
    set_behaviour(python, {"fail": "profiling_disturbed"})
    done = finish(command, tmp_path, "--trials", "5")
    assert done.returncode == 3, done.stderr
    assert count(tmp_path, "autotune_boot") == 2


def wait_for(condition: Callable[[], bool], limit_s: float = 60) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def count(folder: Path, table: str, database: str = "out/study.db") -> int:
    try:
        with sqlite3.connect(f"file:{folder}/{database}?mode=ro", uri=True) as connection:
            return int(connection.execute(f"select count(*) from {table}").fetchone()[0])
    except sqlite3.OperationalError:
        return 0


def points(folder: Path) -> int:
    return count(folder, "autotune_point")


def engines_of(run_id: str) -> list[int]:
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"AUTOTUNE_RUN_ID={run_id}".encode() in environ.read_bytes().split(b"\0"):
                found.append(int(environ.parent.name))
        except OSError:
            continue
    return found


EQUAL = SPACE.replace("seeds:\n", 'seeds:\n  - {name: equal, flags: {stream-interval: 4}, why: "has to be raced"}\n')


def final_points(folder: Path) -> int:
    return count(folder, "autotune_point join autotune_boot b on boot_id = b.id where b.role = 'final'")


def stopped(words: list[str], folder: Path, number: signal.Signals, when: Callable[[], bool]) -> tuple[int, str]:
    """Exit code and messages of a run that gets a signal at some moment."""
    tuner = subprocess.Popen(words, cwd=folder, stderr=subprocess.PIPE, text=True)
    wait_for(when)
    tuner.send_signal(number)
    _, stderr = tuner.communicate(timeout=60)
    return tuner.returncode, stderr


def test_a_study_that_was_asked_to_stop_goes_on_where_it_was(command: list[str], tmp_path: Path) -> None:
    name = f"stop-{os.getpid()}"
    words = [*command, "--trials", "2", "--study", name]
    code, stderr = stopped(words, tmp_path, signal.SIGINT, lambda: points(tmp_path) >= 2)
    kept = points(tmp_path)
    assert code == 130 and "same command" in stderr
    assert engines_of(name) == []

    done = finish(words, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Resuming" in done.stderr and points(tmp_path) >= kept
    assert engines_of(name) == []


def test_a_study_that_is_killed_in_a_trial_and_in_the_race_goes_on(command: list[str], tmp_path: Path) -> None:
    name = f"kill-{os.getpid()}"
    (tmp_path / "space.yaml").write_text(EQUAL)
    words = [*command, "--trials", "2", "--study", name]
    stopped(words, tmp_path, signal.SIGKILL, lambda: points(tmp_path) >= 2)
    kept = points(tmp_path)
    stopped(words, tmp_path, signal.SIGKILL, lambda: final_points(tmp_path) >= 1)
    raced = final_points(tmp_path)
    assert points(tmp_path) > kept

    done = finish(words, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Resuming" in done.stderr and final_points(tmp_path) > raced
    assert engines_of(name) == []


def test_another_question_under_the_same_name_is_refused(command: list[str], tmp_path: Path) -> None:
    assert finish(command, tmp_path, "--trials", "1").returncode == 0
    done = finish(command, tmp_path, "--trials", "1", "--concurrency", "7")
    assert done.returncode == 2 and "concurrency was 32, is 7" in done.stderr


def test_two_tuners_on_one_study_are_refused(command: list[str], tmp_path: Path) -> None:
    words = [*command, "--trials", "2", "--storage", "sqlite:///shared.db"]
    first = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: count(tmp_path, "autotune_boot", "shared.db") >= 1)
        same_folder = finish(words, tmp_path)
        assert same_folder.returncode == 2 and "another autotune works on out" in same_folder.stderr
        other_folder = finish([*words, "--out", "other"], tmp_path)
        assert other_folder.returncode == 2 and "another autotune works on the study s" in other_folder.stderr
    finally:
        first.send_signal(signal.SIGINT)
        first.wait(60)


@pytest.mark.parametrize(("lost", "code"), [("out", 4), ("shared.db", 4)])
def test_a_study_that_loses_its_files_stops_with_one_cause(
    command: list[str], tmp_path: Path, lost: str, code: int
) -> None:
    name = f"lost-{os.getpid()}"
    storage = ["--storage", "sqlite:///shared.db"] if lost == "shared.db" else []
    database = "shared.db" if storage else "out/study.db"
    words = [*command, *storage, "--study", name, "--no-warm-boot"]
    tuner = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: count(tmp_path, "autotune_point", database) >= 1)
    gone = tmp_path / lost
    if gone.is_dir():
        shutil.rmtree(gone)
    else:
        gone.unlink()
    _, stderr = tuner.communicate(timeout=60)
    assert tuner.returncode == code, stderr
    assert "Traceback" not in stderr and str(gone.name) in stderr.splitlines()[-1]
    assert engines_of(name) == []


def test_nothing_around_a_study_can_mislead_it(tmp_path: Path) -> None:
    """Spaces and all letters in every path, folders that look like vLLM, no data folder, a pipe that closed."""
    home = tmp_path / "Größe und «Raum» 模型"
    for trap in ("vllm", "optuna"):
        (home / trap).mkdir(parents=True)
        (home / trap / "__init__.py").write_text("raise SystemExit('the wrong one')")
    (home / "suche — ü.yaml").write_text(SPACE)
    model = write_demo_model(home / "mein Modell")
    python = make_fake_python(home / "venv mit Raum")
    words = ["run", str(model), "--gpu", "cpu", "--space", "suche — ü.yaml", "--out", "Ergebnis ü", "--window", "0.5s"]
    command = [sys.executable, "-P", "-m", "autotune", *words, "--vllm-python", str(python), "--trials", "1", "--json"]
    read, write = os.pipe()
    os.close(read)
    environ = {**os.environ, "XDG_DATA_HOME": "/dev/null/nowhere", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=home, env=environ, stdout=write, stderr=subprocess.PIPE, text=True, timeout=200, check=False
    )
    os.close(write)
    assert done.returncode == 141 and "Traceback" not in done.stderr and "Exception" not in done.stderr, done.stderr
    assert "`autotune serve` will not know of this study" in done.stderr
    launch = (home / "Ergebnis ü/best/launch.sh").read_text()
    assert "mein Modell" in launch
    subprocess.run(["sh", "-n", home / "Ergebnis ü/best/launch.sh"], check=True)
