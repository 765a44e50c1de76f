"""A full disk or a locked database ends a study with one cause in words; the same command goes on afterwards."""

import resource
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest
from chaos_monkey import NO_RACE, study_command
from fake_vllm import make_fake_python

from autotune.errors import EnvironmentFault, StoreError
from autotune.tuner.faults import named_faults


def test_a_full_disk_is_named_with_its_file() -> None:
    with (
        pytest.raises(EnvironmentFault, match=r"No space left on device \(/dev/full\)\. Free some space"),
        named_faults(),
    ):
        try:
            Path("/dev/full").write_text("x")
        except OSError as error:
            raise OSError(error.errno, error.strerror, "/dev/full") from None


def test_a_file_that_is_gone_is_named() -> None:
    with pytest.raises(EnvironmentFault, match=r"^/no/such/file is gone\. If the study's folder"), named_faults():
        Path("/no/such/file").read_text()


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match=r"^Is a directory \(/"), named_faults():
        tmp_path.read_text()


def test_errors_that_are_no_files_pass() -> None:
    with pytest.raises(ConnectionRefusedError), named_faults():
        raise ConnectionRefusedError(111, "Connection refused")


def test_optunas_database_errors_are_ours(tmp_path: Path) -> None:
    import optuna

    (tmp_path / "study.db").write_bytes(b"this is no database" * 100)
    with pytest.raises(StoreError, match="file is not a database"), named_faults():
        optuna.create_study(storage=f"sqlite:///{tmp_path}/study.db")


@pytest.mark.slow
@pytest.mark.parametrize("kib", [40, 150, 350])
def test_a_study_stops_clearly_when_nothing_more_can_be_written_and_goes_on(tmp_path: Path, kib: int) -> None:
    python = make_fake_python(tmp_path / "venv", {"time_scale": 0.3})
    command = study_command(tmp_path, python, f"full-{kib}", "--trials", "1", space=NO_RACE)

    def no_file_larger() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (kib * 1024, resource.RLIM_INFINITY))

    full = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False, preexec_fn=no_file_larger
    )
    assert full.returncode in (2, 3, 4) and "Traceback" not in full.stderr, full.stderr
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_locked_database_stops_the_study_and_loses_nothing(tmp_path: Path) -> None:
    python = make_fake_python(tmp_path / "venv", {"time_scale": 0.3})
    storage = ("--storage", "sqlite:///out/study.db?timeout=3")
    command = study_command(tmp_path, python, "locked", "--trials", "1", *storage, space=NO_RACE)
    tuner = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    database = tmp_path / "out/study.db"
    while not _points(database):
        time.sleep(0.1)
    other = sqlite3.connect(database, isolation_level=None)
    other.execute("begin immediate")
    _, stderr = tuner.communicate(timeout=100)
    kept = _points(database)
    other.execute("rollback")
    assert tuner.returncode == 4 and "database is locked" in stderr and "Traceback" not in stderr, stderr
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    assert kept <= _points(database)


def _points(database: Path) -> set[int]:
    if not database.exists():
        return set()
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
        try:
            return {row[0] for row in connection.execute("select id from autotune_point")}
        except sqlite3.OperationalError:
            return set()
