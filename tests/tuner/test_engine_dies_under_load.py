"""An engine that dies under load costs one point, is written down with its class, and never ends the study."""

import json
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest
from chaos_monkey import NO_RACE, SPACE, study_command
from fake_vllm import make_fake_python

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]


def failures(folder: Path) -> list[str]:
    with sqlite3.connect(folder / "out/study.db") as database:
        return [row[0] for row in database.execute("select cls from autotune_failure")]


@pytest.mark.parametrize(
    ("behaviour", "classes"),
    [
        ({"fail": "engine_died", "fail_after_tokens": 400}, {"engine_died"}),
        ({"fail": "engine_died", "fail_after_tokens": 400, "linger_s": 3.0}, {"engine_died"}),
        ({"exit_after_s": 3.0}, {"exited"}),
        ({"exit_after_s": 3.0, "exit_code": 1}, {"exited", "crashed"}),
        # Only engines of the final race run without our scheduler.
        ({"fail": "engine_died", "fail_after_tokens": 400, "when": {"scheduler-cls": None}}, {"engine_died"}),
        ({"hang_after_tokens": 400}, {"run_hang"}),
    ],
)
def test_study_goes_on_after_one_death(tmp_path: Path, behaviour: dict[str, Any], classes: set[str]) -> None:
    rules = [{"times": 1, **behaviour}]
    python = make_fake_python(tmp_path / "venv", {"time_scale": 0.3, "rules": rules})
    space = SPACE if "when" in behaviour else NO_RACE
    command = study_command(tmp_path, python, "dies", "--trials", "2", space=space)
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert set(failures(tmp_path)) <= classes and failures(tmp_path)
    assert json.loads((tmp_path / "out/best/result.json").read_text())["recommendation"]
