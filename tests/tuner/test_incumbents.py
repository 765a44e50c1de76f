"""What runs in production: read from commands and files, tried first, and raced beside the defaults."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_vllm import make_fake_python, set_behaviour

pytestmark = pytest.mark.timeout(240)

SPACE = """
schema: 1
name: stand-in
parameters:
  max-num-seqs: {values: [2, 8, default], scope: live, ordered: true, why: "limits the batch"}
seeds: []
"""


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    (tmp_path / "space.yaml").write_text(SPACE)
    python = make_fake_python(tmp_path / "venv")
    words = ["run", "--gpu", "cpu", "--space", "space.yaml", "--out", "out", "--window", "1s", "--study", "s"]
    return [sys.executable, "-m", "autotune", *words, "--vllm-python", str(python)]


def finish(command: list[str], folder: Path, *more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*command, *more], cwd=folder, capture_output=True, text=True, timeout=200, check=False)


def result(folder: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((folder / "out/best/result.json").read_text())
    return data


def test_two_incumbents_are_tried_first_and_raced_to_a_table(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "prod.sh").write_text("#!/bin/sh\nexec vllm serve org/m --port 80 --max-num-seqs 2\n")
    given = ["--from-command", "articles=vllm serve m --max-num-seqs 8 --swap-space 4", "--from-command", "prod.sh"]
    done = finish(command, tmp_path, "--trials", "3", *given)
    assert done.returncode == 0, done.stderr
    found = result(tmp_path)
    roles = [t["role"] for t in found["trials"]]
    assert roles[:3] == ["baseline", "incumbent", "incumbent"] and set(roles[3:]) == {"final"}
    assert "--swap-space was left out" in done.stderr
    table = {r["name"]: r for r in found["recommendation"]["racers"]}
    assert [(n, r["role"]) for n, r in table.items()][1:] == [("articles", "incumbent"), ("prod", "incumbent")]
    assert table["articles"]["config"]["flags"] == [["max-num-seqs", 8]]
    assert all(len(r["rounds"]) >= 2 and r["value"]["low"] < r["value"]["high"] for r in table.values())
    assert set(table["articles"]["gain_over"]) == {"default", "prod"}
    assert {"articles", "prod"} == set(table["default"]["gain_over"])
    # Eight requests at a time are faster than two, and slower than all.
    gains = {name: gain["value"] for name, gain in table["articles"]["gain_over"].items()}
    assert gains["prod"] > 0 > gains["default"]
    assert "over articles" in done.stdout and "over default" in done.stdout


def test_an_incumbent_that_nothing_beats_stays(command: list[str], tmp_path: Path) -> None:
    set_behaviour(tmp_path / "venv/bin/python", {"rules": [{"when": {"block-size": 32}, "time_scale": 0.5}]})
    (tmp_path / "prod.yaml").write_text("model: org/m\nblock-size: 32\nport: 80\n")
    done = finish(command, tmp_path, "--trials", "2", "--from-config", "prod.yaml")
    assert done.returncode == 0, done.stderr
    found = result(tmp_path)["recommendation"]
    assert found["verdict"] == "keep-incumbent" and found["config"]["flags"] == [["block-size", 32]]
    assert "prod is in production already" in " ".join(found["reasons"]) and "Keep what runs" in done.stdout


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--from-command", "vllm serve m --no-such-flag 1"], "no --no-such-flag"),
        (["--from-command", "a=vllm serve m --max-num-seqs 5", "--from-command", "a=vllm serve m"], "is taken"),
        (["--from-config", "missing.yaml"], "no such file"),
        (["--from-command", "echo hello"], "starts no vLLM"),
        (["--from-command", "vllm serve m --max-model-len 16"], "shorter than the workload"),
    ],
)
def test_what_cannot_be_tried_is_refused_before_anything_starts(
    command: list[str], tmp_path: Path, given: list[str], said: str
) -> None:
    done = finish(command, tmp_path, "--trials", "1", *given)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "out/study.db").exists()


def test_an_incumbent_that_is_the_default_needs_no_trial(command: list[str], tmp_path: Path) -> None:
    done = finish(command, tmp_path, "--trials", "1", "--from-command", "vllm serve m --port 80")
    assert done.returncode == 0, done.stderr
    assert "starts the same engine as vLLM's defaults" in done.stderr
    assert [t["role"] for t in result(tmp_path)["trials"]] == ["baseline"]
