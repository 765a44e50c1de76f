"""Whole re-tunes on the stand-in for vLLM: every verdict, its exit code, and what it leaves on the disk."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fake_vllm import make_fake_python, set_behaviour
from retune_studies import recommendation, with_best, write_study

from autotune.space.config import LaunchConfig

pytestmark = pytest.mark.timeout(200)

SLOW_STEP_S = 0.010


@dataclass
class Place:
    """A study tuned on 0.31 and a Python with each version."""

    folder: Path
    old: Path
    new: Path

    def retune(self, *more: str, budget: str = "150s") -> "subprocess.CompletedProcess[str]":
        words = ["retune", "study", "--gpu", "cpu", "--window", "1s", "--budget", budget, "--json", *more]
        return subprocess.run(
            [sys.executable, "-m", "autotune", *words], cwd=self.folder, capture_output=True, text=True, check=False
        )

    def both(self) -> list[str]:
        return ["--old-python", str(self.old), "--new-python", str(self.new), "--no-search"]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, make_fake_python(tmp_path / "old", version="0.31.0"), make_fake_python(tmp_path / "new"))


def report(done: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    assert done.stdout, done.stderr
    data: dict[str, Any] = json.loads(done.stdout)
    assert data["exit_code"] == done.returncode, done.stderr
    return data


def step(factor: float) -> dict[str, Any]:
    """Steps long enough that a busy test machine hardly shows."""
    return {"perf": {"step_s": SLOW_STEP_S * factor, "per_seq_s": 0.0, "per_prefill_token_s": 0.0}}


def test_a_faster_version_is_adopted_and_the_old_files_are_kept_for_a_rollback(place: Place) -> None:
    set_behaviour(place.old, step(1.4))
    set_behaviour(place.new, step(1.0))
    study = write_study(place.folder / "study", recommendation(place.folder, config=LaunchConfig()), place.old)
    before = (study / "best/vllm.yaml").read_text()
    unit = place.folder / "vllm.service"
    unit.write_text("an older unit\n")
    found = report(place.retune(*place.both(), "--export", f"systemd={unit}"))
    assert (found["verdict"], found["exit_code"]) == ("adopt", 10)
    assert "0.32.0" in (study / "best/vllm.yaml").read_text() and "[Service]" in unit.read_text()
    assert (study / "best/vllm.yaml.previous").read_text() == before
    assert (place.folder / "vllm.service.previous").read_text() == "an older unit\n"
    adopted = json.loads((study / "retune/incumbent.json").read_text())["recommendation"]
    assert adopted["provenance"]["vllm_version"] == "0.32.0" and adopted["provenance"]["study"] == "s"

    assert place.retune("--rollback", "--export", f"systemd={unit}").returncode == 0
    assert (study / "best/vllm.yaml").read_text() == before and unit.read_text() == "an older unit\n"


def test_a_version_that_the_incumbent_does_not_start_on_is_held(place: Place) -> None:
    set_behaviour(place.old, step(1.0))
    set_behaviour(place.new, {**step(1.0), "rules": [{"when": {"max-num-seqs": 16}, "fail": "kv_cache_too_small"}]})
    study = write_study(place.folder / "study", recommendation(place.folder), place.old)
    before = {p: p.read_bytes() for p in (study / "best").iterdir()}
    found = report(place.retune(*place.both()))
    assert (found["verdict"], found["exit_code"]) == ("hold", 20) and "kv_cache_too_small" in found["reasons"][0]
    assert {p: p.read_bytes() for p in (study / "best").iterdir()} == before and found["exported"] == []
    kept = list((study / "retune/nights").glob("*/report.json"))
    assert len(kept) == 1 and json.loads(kept[0].read_text()) == found


def test_nothing_changed_takes_two_boots_at_most(place: Place) -> None:
    set_behaviour(place.new, step(1.0))
    first = recommendation(place.folder, version="0.32.0")
    study = write_study(place.folder / "study", with_best(first, 1e6), place.new)
    odd = report(place.retune("--new-python", str(place.new)))
    assert (odd["verdict"], odd["boots"], odd["exit_code"]) == ("undecided", 2, 30)

    write_study(study, with_best(first, odd["values"]["incumbent on new"]), place.new)
    found = report(place.retune("--new-python", str(place.new)))
    assert (found["verdict"], found["exit_code"]) == ("equal", 0) and found["boots"] <= 2


def test_flags_that_have_another_name_now_are_migrated_and_said(place: Place) -> None:
    set_behaviour(place.old, step(1.0))
    set_behaviour(place.new, step(0.7))
    config = LaunchConfig.of({"num-scheduler-steps": 8})
    write_study(place.folder / "study", recommendation(place.folder, version="0.8.5", config=config), None)
    found = report(place.retune("--new-python", str(place.new), "--no-search"))
    assert any("--num-scheduler-steps" in text for text in found["migration"])
    assert found["rounds"] == 3 and found["change"] is not None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--old-python", "/nowhere/python"], "no such file"),
        (["--budget", "soon"], "no duration"),
        (["--export", "kubernetes"], "FORMAT=FILE|names no file"),
        (["--rollback"], "nothing to go back to"),
    ],
)
def test_wrong_input_ends_with_2_and_a_line(place: Place, words: list[str], message: str) -> None:
    write_study(place.folder / "study", recommendation(place.folder), place.old)
    done = place.retune("--new-python", str(place.new), *words)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert any(part in done.stderr for part in message.split("|"))
