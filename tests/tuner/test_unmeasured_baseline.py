"""Where vLLM's defaults have no figure nothing is claimed about them: no verdict, no files, nothing for ``serve``."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_vllm import make_fake_python, set_behaviour
from replayed_machine import EMPTY, FakeEngine, Machine, install, settings_for, tune

from autotune.errors import UsageError
from autotune.export.formats import FORMATS
from autotune.export.registry import entries
from autotune.report.result import print_result
from autotune.search.study import open_study
from autotune.space.config import LaunchConfig
from autotune.store.recommendation import Recommendation
from autotune.tuner import trials
from autotune.tuner.objective import Reading
from autotune.tuner.plan import Plan
from autotune.tuner.points import Point
from autotune.tuner.settings import RunSettings

SPACE = """
schema: 1
name: replayed
parameters:
  max-num-seqs: {values: [2, default], why: "limits the batch"}
  block-size: {values: [default, 32], why: "fast with many"}
seeds:
  - {name: few, flags: {max-num-seqs: 2}, why: "x"}
  - {name: many, flags: {block-size: 32}, why: "x"}
"""


@pytest.fixture
def python(tmp_path: Path) -> Path:
    return make_fake_python(tmp_path / "venv")


@pytest.fixture
def settings(tmp_path: Path, python: Path) -> RunSettings:
    return settings_for(tmp_path, python, SPACE, trials=1, ablation=False)


def is_default(config: LaunchConfig) -> bool:
    return config.get("max-num-seqs") is None and config.get("block-size") is None


def silent_defaults(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """No point of the defaults is valid; what else runs gives 1,500."""

    def take(engine: FakeEngine, plan: Plan, *_: Any, **__: Any) -> Point:
        machine.pass_time(10.0)
        if is_default(engine.spec.config):
            return Point(Reading(measurement=EMPTY, problem="not measured: 100 of 153 requests failed"), 10.0)
        aspects = dict.fromkeys(plan.objective.aspects, 1500.0)
        return Point(Reading(measurement=EMPTY, value=1500.0, value_se=1.0, aspects=aspects), 10.0)

    install(machine, monkeypatch)
    monkeypatch.setattr(trials, "take_point", take)


def nothing_claimed(found: Recommendation, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert (found.verdict, found.baseline, found.best, found.gain) == ("not-measured", None, None, None)
    assert not found.recommends and not found.config.flags
    assert found == Recommendation.from_json(found.to_json())
    print_result(found, as_json=False)
    told = capsys.readouterr().out
    assert told.startswith("vLLM's defaults were not measured, so nothing is recommended.")
    assert why in found.reasons[0] and "same command again" in found.reasons[1]
    for claim in ("Keep", "better than the noise", "did better than the default"):
        assert claim not in told and claim not in " ".join(found.reasons)
    with pytest.raises(UsageError, match="could not measure vLLM's defaults"):
        FORMATS["vllm"].render(found)


@pytest.mark.parametrize("objective", [{}, {"objective": "pareto"}, {"objective": "cost", "price_per_hour": 2.0}])
def test_defaults_whose_points_are_all_invalid(
    settings: RunSettings,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    objective: dict[str, Any],
) -> None:
    machine = Machine()
    silent_defaults(machine, monkeypatch)
    found, _ = tune(machine, replace(settings, **objective))
    nothing_claimed(found, "not measured: 100 of 153 requests failed", capsys)
    assert any("vLLM's defaults were not measured" in note for note in machine.notes)


def test_defaults_that_give_no_figure_in_the_race_either(
    settings: RunSettings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = Machine()
    silent_defaults(machine, monkeypatch)
    found, _ = tune(machine, replace(settings, trials=3))
    assert "trial" in machine.roles() and "final" in machine.roles()
    nothing_claimed(found, "no figure in the race: not measured: 100 of 153 requests failed", capsys)


def test_defaults_that_do_not_run_here(
    settings: RunSettings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = Machine(boot_s=lambda config: None if is_default(config) else 20.0)
    install(machine, monkeypatch)
    found, _ = tune(machine, settings)
    nothing_claimed(found, "they do not run here: oom_weights", capsys)
    # What runs where they do not is worth having, without a gain.
    found, _ = tune(machine, replace(settings, trials=3))
    assert found.verdict == "adopt" and found.gain is None
    assert "vLLM's defaults do not run here: oom_weights" in " ".join(found.reasons)


def test_a_budget_that_ends_before_they_are_measured_and_a_second_one_that_does_not(
    settings: RunSettings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = Machine(boot_s=lambda config: 50.0)
    install(machine, monkeypatch)
    found, _ = tune(machine, replace(settings, trials=None, budget_s=30))
    nothing_claimed(found, "would not have ended within the budget", capsys)
    found, _ = tune(machine, replace(settings, budget_s=900))
    assert found.verdict == "keep-default" and found.baseline is not None
    print_result(found, as_json=False)
    assert "Keep vLLM's defaults: nothing was proven better." in capsys.readouterr().out
    assert "No configuration but the default was measured" in found.reasons[0]
    told = open_study("s", f"sqlite:///{settings.out}/study.db", "maximize").get_trials()
    assert [t.state.name for t in told] == ["FAIL", "COMPLETE"], "the same command measures them first"


def test_defaults_that_are_lost_in_the_race_prove_nothing(
    settings: RunSettings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = Machine(value=lambda config: 1000.0 if is_default(config) else 1500.0)
    machine.boot_s = lambda config: None if is_default(config) and "final" in machine.roles() else 20.0
    install(machine, monkeypatch)
    found, _ = tune(machine, replace(settings, trials=3))
    assert found.verdict == "keep-default" and found.baseline is not None
    assert found.reasons[0] == "The default gave no figure in the race, so nothing is proven better."
    print_result(found, as_json=False)
    assert "nothing was proven better" in capsys.readouterr().out


# The same through the command, on the stand-in.


def command(folder: Path, python: Path, *words: str) -> list[str]:
    (folder / "space.yaml").write_text(SPACE)
    fixed = ["--gpu", "cpu", "--space", "space.yaml", "--out", "out", "--window", "0.5s", "--trials", "1", "--json"]
    return [sys.executable, "-m", "autotune", "run", *fixed, "--vllm-python", str(python), *words]


def leaves_nothing(folder: Path) -> None:
    assert not (folder / "out/best").exists() and entries() == []
    assert {p.name for p in (folder / "out").iterdir()} <= {".lock", "cache", "logs"} | {
        p.name for p in (folder / "out").glob("study.db*")
    }


def test_the_command_fails_and_writes_nothing(tmp_path: Path, python: Path) -> None:
    set_behaviour(python, {"fail": "kv_cache_too_small"})
    done = subprocess.run(
        command(tmp_path, python), cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    told = json.loads(done.stdout)
    assert (told["verdict"], told["baseline"]) == ("not-measured", None) and "kv_cache_too_small" in told["reasons"][0]
    assert "Wrote" not in done.stderr
    leaves_nothing(tmp_path)


def test_a_stop_before_they_are_measured_writes_nothing(tmp_path: Path, python: Path) -> None:
    name = f"early-{os.getpid()}"
    words = command(tmp_path, python, "--study", name)
    tuner = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 60
    while not list(tmp_path.glob("out/logs/*baseline*")):
        assert time.monotonic() < end
        time.sleep(0.05)
    tuner.send_signal(signal.SIGINT)
    out, err = tuner.communicate(timeout=60)
    assert tuner.returncode == 130 and not out and "same command" in err
    leaves_nothing(tmp_path)
