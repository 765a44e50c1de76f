"""``autotune compare`` on the stand-in: one row a precision, whatever becomes of it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from fake_vllm import make_fake_python

from autotune.engine.demo_model import write_demo_model

pytestmark = [pytest.mark.long, pytest.mark.timeout(290)]


def test_every_precision_gets_its_row(tmp_path: Path) -> None:
    rules = [
        {"when": {"kv-cache-dtype": "int8_per_token_head"}, "garbage": True},
        {"when": {"kv-cache-dtype": "nvfp4"}, "fail": "kv_cache_too_small"},
        {"when": {"kv-cache-dtype": "fp8"}, "precision_noise": 0.03},
    ]
    python = make_fake_python(tmp_path / "venv", {"rules": rules})
    base, variant = write_demo_model(tmp_path / "base"), write_demo_model(tmp_path / "awq")
    words = ["compare", str(base), "--variant", str(variant), "--gpu", "cpu", "--window", "1s", "--concurrency", "4"]
    for value in ("fp8", "int8_per_token_head", "nvfp4"):
        words += ["--precision", f"kv-cache-dtype={value}"]
    done = subprocess.run(
        [sys.executable, "-m", "autotune", *words, "--json", "--out", "out", "--vllm-python", str(python)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    verdicts = {name: row["verdict"] for name, row in rows.items()}
    assert verdicts == {
        "as published": "reference",
        f"--model {variant}": "within",
        "--kv-cache-dtype fp8": "within",
        "--kv-cache-dtype int8_per_token_head": "over",
        "--kv-cache-dtype nvfp4": "does not run",
    }, rows
    assert rows["--kv-cache-dtype fp8"]["kv_bytes_per_token"] < rows["as published"]["kv_bytes_per_token"]
    assert "kv_cache_too_small" in rows["--kv-cache-dtype nvfp4"]["reason"]


def test_a_flag_without_a_value_is_refused(tmp_path: Path) -> None:
    python = make_fake_python(tmp_path / "venv")
    words = ["compare", str(write_demo_model(tmp_path / "m")), "--gpu", "cpu", "--precision", "fp8"]
    done = subprocess.run(
        [sys.executable, "-m", "autotune", *words, "--vllm-python", str(python)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and "Write it like kv-cache-dtype=fp8" in done.stderr
