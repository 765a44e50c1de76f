"""Bad input to ``autotune run``: exit code 2 and one or two lines that name the value, before anything starts.

``autotune plan`` refuses the same in the same words, and leaves no trace.
"""

import sqlite3
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from fake_vllm import make_fake_python

from autotune.cli.main import run_command
from autotune.store.schema import VERSION_TABLE
from autotune.store.store import Store


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fake_python(tmp_path_factory.mktemp("vllm") / "venv")


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wrong-key.yaml").write_text("parameters:\n  max-num-seqs: {values: [1], scoop: live}\n")
    (tmp_path / "wrong-flag.yaml").write_text("parameters:\n  max-num-seqz: [1, 2]\n")
    (tmp_path / "wrong-type.yaml").write_text("parameters:\n  max-num-seqs: {values: [1, 2], ordered: 7}\n")
    (tmp_path / "empty-range.yaml").write_text("parameters:\n  max-num-seqs: {values: []}\n")
    (tmp_path / "text.db").write_text("no database at all, only words, and enough of them " * 30)
    (tmp_path / "random.db").write_bytes(Random(1).randbytes(9000))
    (tmp_path / "folder").mkdir()
    with sqlite3.connect(tmp_path / "newer.db") as newer:
        newer.execute(f"create table {VERSION_TABLE} (version_num text)")
        newer.execute(f"insert into {VERSION_TABLE} values ('9999')")
    store = Store.open("sqlite:///other.db")
    store.start_run("s", store.record_host("h", {}), {"model": "another"}, {})
    store.close()
    return tmp_path


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["/no/such/model"], "/no/such/model"),
        (["--space", "wrong-key.yaml"], "wrong-key.yaml:2"),
        (["--space", "wrong-flag.yaml"], "max-num-seqz"),
        (["--space", "wrong-type.yaml"], "found 7"),
        (["--space", "empty-range.yaml"], "empty-range.yaml:2"),
        (["--space", "absent.yaml"], "absent.yaml"),
        (["--workload", "nonsense"], "nonsense"),
        (["--budget", "0"], "--budget '0'"),
        (["--budget", "soon"], "soon"),
        (["--trials", "many"], "--trials"),
        (["--gpu", "77"], "--gpu 77"),
        (["--storage", "sqlite:////proc/none/x.db"], "/proc/none/x.db"),
        (["--storage", "sqlite:///text.db"], "text.db"),
        (["--storage", "nonsense"], "nonsense"),
        (["--storage", ""], "--storage is empty"),
        (["--storage", "sqlite:///random.db"], "random.db: file is not a database"),
        (["--storage", "sqlite:///newer.db"], "newer.db was written by a newer autotune"),
        (["--storage", "sqlite:///folder"], "folder: unable to open database file"),
        (["--storage", "sqlite:///no/such/folder/s.db"], "unable to open database file"),
        (["--storage", "postgresql://me:secret@127.0.0.1:9/x"], "cannot open the storage postgresql://me:***@"),
        (["--storage", "sqlite:///other.db", "--study", "s"], "the study s asked something else"),
        (["--out", "/proc/none/out"], "/proc/none/out"),
        (["--out", "text.db"], "--out text.db cannot be written: File exists"),
        (["--out", "text.db/below"], "--out text.db/below cannot be written: Not a directory"),
        (["--objective", "latency", "--rate", "1e99"], "--rate 1e+99"),
        (["--objective", "pareto", "--concurrency", "3"], "--concurrency 3"),
        (["--slo", "ttft_p99.999999=1s"], "ttft_p99.999999=1s"),
        (["--vllm-python", "/no/python"], "/no/python"),
        (["--vllm-arg", "dtype=half"], "dtype=half"),
        (["--vllm-arg=--no-such-flag=1"], "no-such-flag"),
        (["--objective", "goodput"], "--slo ttft_p95=500ms"),
        (["--objective", "latency"], "--rate 4"),
        (["--objective", "cost"], "--price-per-hour 2.50"),
        (["--rate", "4"], "--rate 4 has no meaning"),
        (["--slo", "fast"], "'fast'"),
        (["model-a", "--model", "model-b"], "model-b"),
        (["--unknown-option"], "--unknown-option"),
    ],
)
def test_bad_input_is_named_in_two_lines(
    words: list[str], told: str, python: Path, own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vllm = [] if "--vllm-python" in words else ["--vllm-python", str(python)]
    options = ["--trials", "1", "--gpu", "cpu", *vllm, *words]
    before = contents(own_folder)
    assert run_command(["plan", *options]) == 2
    planned = capsys.readouterr()
    assert contents(own_folder) == before and not planned.out
    assert run_command(["run", *options]) == 2
    message = capsys.readouterr().err
    assert message == planned.err.replace("autotune plan", "autotune run")
    assert told in message and len(message.strip().splitlines()) <= 2 and "Traceback" not in message
    assert not list(own_folder.glob("**/logs/*.log"))


def contents(folder: Path) -> dict[Path, bytes | None]:
    """Every file and folder below."""
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def test_a_python_without_vllm_is_told_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    assert run_command(["run", "--gpu", "cpu", "--vllm-python", str(tmp_path / "bare/bin/python")]) == 2
    assert "no vLLM" in capsys.readouterr().err
