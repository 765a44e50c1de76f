"""Studies in which a precision is fast and wrong: it is measured, told and never exported."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import optuna
import pytest
from fake_vllm import make_fake_python

from autotune.engine.demo_model import write_demo_model

pytestmark = [pytest.mark.long, pytest.mark.timeout(290)]

BROKEN, GOOD, LOSSY, SILENT = "int8_per_token_head", "fp8", "fp8_e5m2", "int8_per_channel_weight_only"
SPACE = f"""
schema: 1
name: guarded
extends: cpu
parameters:
  max-num-seqs: {{values: [8, default], scope: live, ordered: true, why: "limits the batch"}}
  max-num-batched-tokens: {{values: [default], why: "left alone"}}
  enforce-eager: {{values: [default], why: "left alone"}}
  enable-prefix-caching: {{values: [default], why: "left alone"}}
  kv-cache-memory-bytes: {{values: [default], why: "left alone"}}
  dtype: {{values: [default], why: "left alone"}}
  kv-cache-dtype: {{values: [default, {GOOD}, {LOSSY}, {BROKEN}], precision: true, why: "good, lossy and noise"}}
  quantization: {{values: [default, {SILENT}], precision: true, why: "does nothing"}}
seeds:
  - {{name: broken, flags: {{kv-cache-dtype: {BROKEN}}}, why: "the fastest"}}
  - {{name: good, flags: {{kv-cache-dtype: {GOOD}}}, why: "fast"}}
  - {{name: lossy, flags: {{kv-cache-dtype: {LOSSY}}}, why: "faster"}}
  - {{name: silent, flags: {{quantization: {SILENT}}}, why: "does nothing"}}
"""
BEHAVIOUR: dict[str, Any] = {
    "time_scale": 0.5,
    "rules": [
        {"when": {"kv-cache-dtype": BROKEN}, "garbage": True, "time_scale": 0.1},
        {"when": {"kv-cache-dtype": LOSSY}, "precision_noise": 1.0, "time_scale": 0.2},
        {"when": {"kv-cache-dtype": GOOD}, "precision_noise": 0.03, "time_scale": 0.3},
    ],
}


def study(folder: Path, *words: str, model: bool = True, behaviour: dict[str, Any] = BEHAVIOUR) -> dict[str, Any]:
    python = folder / "venv/bin/python"
    if not python.exists():
        make_fake_python(folder / "venv", behaviour)
        (folder / "space.yaml").write_text(SPACE)
    if model:
        words = ("--model", str(write_demo_model(folder / "model")), *words)
    command = [sys.executable, "-m", "autotune", "run", "--gpu", "cpu", "--space", "space.yaml", "--out", "out"]
    given = ["--study", "q", "--window", "1s", "--concurrency", "4", "--vllm-python", str(python), "--no-warm-boot"]
    done = subprocess.run([*command, *given, *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads((folder / "out/best/result.json").read_text())
    return {**result, "folder": folder, "stderr": done.stderr, "stdout": done.stdout}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("guarded")
    return folder, study(folder, "--trials", "5")


def test_the_fastest_answers_noise_and_the_good_one_races(guarded: tuple[Path, dict[str, Any]]) -> None:
    _, result = guarded
    found = result["recommendation"]
    raced = {t["flags"].get("kv-cache-dtype") for t in result["trials"] if t["role"] == "final"}
    assert raced == {None, GOOD}, result["stderr"]
    assert dict(found["config"]["flags"]).get("kv-cache-dtype") in (None, GOOD)
    speed = {row["name"]: row["value"] for row in found["quality"]}
    assert speed[f"--kv-cache-dtype {BROKEN}"] > speed[f"--kv-cache-dtype {GOOD}"]
    if found["verdict"] == "adopt":  # the machine may be too noisy to prove a gain
        assert found["provenance"]["quality"].startswith("measured: KL") and "by precision" in result["stdout"]
        assert "Quality: measured: KL" in (result["folder"] / "out/best/vllm.yaml").read_text()


def test_every_class_has_its_verdict_and_reason(guarded: tuple[Path, dict[str, Any]]) -> None:
    _, result = guarded
    rows = {row["name"]: row for row in result["recommendation"]["quality"]}
    assert {name: row["verdict"] for name, row in rows.items()} == {
        "as published": "reference",
        f"--kv-cache-dtype {GOOD}": "within",
        f"--kv-cache-dtype {LOSSY}": "over",
        f"--kv-cache-dtype {BROKEN}": "over",
        f"--quantization {SILENT}": "no effect",
    }
    assert any(r.startswith(f"Not exported: --kv-cache-dtype {BROKEN}") for r in result["recommendation"]["reasons"])
    assert any("No effect" in r and "quantized 0 layers" in r for r in result["recommendation"]["reasons"])
    assert "over" in result["stdout"]


def test_optuna_is_told_a_constraint_and_a_flag_without_effect_is_no_trial_of_its_own(
    guarded: tuple[Path, dict[str, Any]],
) -> None:
    folder, _ = guarded
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    trials = optuna.load_study(study_name="q", storage=f"sqlite:///{folder}/out/study.db").trials
    told = {json.loads(t.user_attrs["target"])["flags"].get("kv-cache-dtype"): t.constraints["quality"] for t in trials}
    assert told[BROKEN] > 0 and told[LOSSY] > 0 and told[GOOD] == -1 and told[None] in (-1, 1)
    silent = [t for t in trials if "quantization" in json.loads(t.user_attrs["target"])["flags"]]
    assert len(silent) == 1 and silent[0].constraints["starts"] > 0


def test_each_class_is_measured_once_and_never_again_for_other_limits(guarded: tuple[Path, dict[str, Any]]) -> None:
    _, result = guarded
    readings = [line for line in result["stderr"].splitlines() if "] Quality of --" in line]
    assert len(readings) == len({line.split("] ")[1].split(":")[0] for line in readings}) == 3


def test_without_log_probabilities_nothing_that_changes_precision_is_exported(tmp_path: Path) -> None:
    result = study(tmp_path, "--trials", "2", "--vllm-arg=--max-logprobs=5")
    assert "greater than max allowed: 5" in result["stderr"]
    assert "kv-cache-dtype" not in dict(result["recommendation"]["config"]["flags"])
    assert result["recommendation"]["provenance"]["quality"] == "as published"
    tried = [t["flags"].get("kv-cache-dtype") for t in result["trials"] if t["role"] == "trial"]
    assert tried == [None] * len(tried), "known from the baseline on, so no engine is spent on it"
