"""Servers that are fast because they cheat, or that crash: each is tried, none is believed, none is exported."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from fake_vllm import make_fake_python

pytestmark = [pytest.mark.slow, pytest.mark.timeout(290)]

# The flag does nothing in the stand-in but choose how it cheats.
FLAG = "long-prefill-token-threshold"
CHEATS = {
    1: {"short_output": 1.0},
    2: {"http_503": 0.03},
    3: {"error_chunk": 0.3},
    4: {"metrics_factor": 0.5},
    5: {"short_output": 0.3},
    6: {"fail": "unknown"},
}
SPACE = f"""
schema: 1
name: cheats
extends: cpu
parameters:
  {FLAG}: {{values: [default, {", ".join(map(str, CHEATS))}], why: "chooses how the stand-in cheats"}}
seeds:
""" + "".join(f'  - {{name: cheat-{n}, flags: {{{FLAG}: {n}}}, why: "must be seen through"}}\n' for n in CHEATS)


def test_no_cheat_is_exported(tmp_path: Path) -> None:
    rules = [{"when": {FLAG: n}, "time_scale": 0.1, **cheat} for n, cheat in CHEATS.items()]
    python = make_fake_python(tmp_path / "venv", {"time_scale": 0.3, "rules": rules})
    (tmp_path / "space.yaml").write_text(SPACE)
    words = ["run", "--gpu", "cpu", "--concurrency", "4", "--space", "space.yaml", "--out", "out", "--window", "0.5s"]
    command = [sys.executable, "-m", "autotune", *words, "--study", "cheats", "--trials", "10"]
    done = subprocess.run(
        [*command, "--vllm-python", str(python)], cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "out/best/result.json").read_text())
    tried = {t["flags"].get(FLAG): [p["value"] for p in t["points"]] for t in result["trials"] if t["role"] == "trial"}
    cheats = {n: values for n, values in tried.items() if n}
    assert len(cheats) >= 3, done.stderr
    assert all(value is None for values in cheats.values() for value in values), cheats
    assert FLAG not in dict(result["recommendation"]["config"]["flags"])
