"""Whole studies on the stand-in, one for each objective: direction, unit, infeasibility and files follow it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_vllm import make_fake_python

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]

SPACE = """
schema: 1
name: stand-in
parameters:
  max-num-seqs: {values: [2, default], ordered: true, why: "limits the batch"}
  enforce-eager: {values: [default, true], why: "slower by a third here"}
seeds:
  - {name: poor, flags: {max-num-seqs: 2}, why: "two requests at a time"}
"""


@pytest.fixture
def python(tmp_path: Path) -> Path:
    return make_fake_python(tmp_path / "venv")


def study(folder: Path, python: Path, *words: str) -> tuple[dict[str, Any], str]:
    (folder / "space.yaml").write_text(SPACE)
    fixed = ["--gpu", "cpu", "--space", "space.yaml", "--out", "out", "--window", "1s", "--study", "s", "--json"]
    command = [sys.executable, "-m", "autotune", "run", *fixed, "--vllm-python", str(python), *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads((folder / "out/best/result.json").read_text())
    assert json.loads(done.stdout) == found["recommendation"]
    return found, done.stderr


def test_latency_at_a_rate_that_a_poor_configuration_cannot_keep(tmp_path: Path, python: Path) -> None:
    found, told = study(tmp_path, python, "--objective", "latency", "--rate", "6", "--trials", "2")
    best = found["recommendation"]
    assert (best["unit"], best["direction"], best["verdict"]) == ("ms", "minimize", "keep-default")
    assert 500 < best["best"]["value"] < 3000 and "objective latency" in told and "Poisson 6 req/s" in told
    assert "cannot keep 6 requests per second" in told

    import optuna

    told_to_search = optuna.load_study(study_name="s", storage=f"sqlite:///{tmp_path}/out/study.db")
    assert told_to_search.direction is optuna.study.StudyDirection.MINIMIZE
    poor = told_to_search.trials[1]
    assert poor.constraints["starts"] > 0 and poor.value == told_to_search.trials[0].value


def test_where_nothing_meets_the_slo_there_is_no_figure_and_no_export(tmp_path: Path, python: Path) -> None:
    words = ["--objective", "cost", "--price-per-hour", "3.6", "--slo", "ttft_p80=1ms", "--trials", "1"]
    found, told = study(tmp_path, python, *words)
    best = found["recommendation"]
    assert (best["verdict"], best["best"], best["unit"]) == ("nothing-feasible", None, "$/Mtok")
    assert best["provenance"]["objective"] == "cost at 3.6 under ttft_p80=1ms"
    assert [p.name for p in (tmp_path / "out/best").iterdir()] == ["result.json"]
    assert "The nearest miss is vLLM defaults: ttft_p80=1ms missed by" in " ".join(best["reasons"])
    point = found["trials"][0]["points"][0]
    assert point["value"] is None and "ttft_p80=1ms missed by" in point["missed"] and point["limit"]["limit"]
    assert "misses the SLO" in told
