"""What runs in production: read from commands and files, tried first, and raced beside the defaults."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from fake_vllm import make_fake_python
from replayed_machine import Machine, install, settings_for, tune

from autotune.errors import UsageError
from autotune.report.result import print_result
from autotune.space.config import LaunchConfig
from autotune.tuner.prepare import prepare
from autotune.tuner.settings import RunSettings, resolve_settings

SPACE = """
schema: 1
name: stand-in
parameters:
  max-num-seqs: {values: [2, 8, default], scope: live, ordered: true, why: "limits the batch"}
seeds: []
"""


@pytest.fixture
def settings(tmp_path: Path) -> RunSettings:
    return settings_for(tmp_path, make_fake_python(tmp_path / "venv"), SPACE, trials=4, sampler="random")


def speed(config: LaunchConfig) -> float:
    seqs = config.get("max-num-seqs")
    slots = min(seqs, 32) if isinstance(seqs, int) else 32
    return 100.0 * slots * (1.5 if config.get("block-size") == 32 else 1.0)


def test_two_incumbents_are_tried_first_and_raced_to_a_table(
    settings: RunSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "prod.sh").write_text("#!/bin/sh\nexec vllm serve org/m --port 80 --max-num-seqs 3\n")
    commands = ("articles=vllm serve m --max-num-seqs 5 --swap-space 4", str(tmp_path / "prod.sh"))
    machine = Machine(value=speed)
    install(machine, monkeypatch)
    asked = replace(settings, from_command=commands)
    found, _ = tune(machine, asked)
    assert machine.roles()[:4] == ["baseline", "incumbent", "incumbent", "trial"]
    assert any("--swap-space was left out" in remark for remark in prepare(asked).remarks)
    table = {r.name: r for r in found.racers}
    assert [r.role for r in table.values()][:3] == ["default", "incumbent", "incumbent"]
    assert table["articles"].config == LaunchConfig.of({"max-num-seqs": 5})
    assert all(len(r.rounds) >= 2 and r.value and r.value.low < r.value.high for r in table.values())
    over = table["articles"].gain_over
    assert set(over) == {"default", "prod"} and over["prod"].value == pytest.approx(5 / 3 - 1)
    assert over["prod"].low > 0 > over["default"].high
    assert set(table["default"].gain_over) == {"articles", "prod"}
    print_result(found, as_json=False)
    shown = capsys.readouterr().out
    assert "over articles" in shown and "over default" in shown and "+66.7 %" in shown
    assert found == type(found).from_json(found.to_json())


def test_an_incumbent_that_nothing_beats_stays(
    settings: RunSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "prod.yaml").write_text("model: org/m\nblock-size: 32\nport: 80\n")
    machine = Machine(value=speed)
    install(machine, monkeypatch)
    found, _ = tune(machine, replace(settings, from_config=(str(tmp_path / "prod.yaml"),)))
    assert found.verdict == "keep-incumbent" and found.config == LaunchConfig.of({"block-size": 32})
    assert "prod is in production already: keep it." in found.reasons
    print_result(found, as_json=False)
    assert "Keep what runs in production" in capsys.readouterr().out


def test_without_trials_the_race_comes_at_once(settings: RunSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(value=speed)
    install(machine, monkeypatch)
    commands = ("wide=vllm serve m --block-size 32", "narrow=vllm serve m --max-num-seqs 3")
    found, _ = tune(machine, replace(settings, from_command=commands, trials=0))
    assert set(machine.roles()) == {"final", "soak"} and found.verdict == "keep-incumbent"
    assert [(r.name, len(r.rounds)) for r in found.racers] == [("default", 2), ("wide", 2), ("narrow", 2)]
    over = {r.name: r.gain_over for r in found.racers}["wide"]
    assert over["default"].low > 0.4 and over["narrow"].low > 0.4


def test_an_incumbent_that_cannot_run_is_not_raced(settings: RunSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(value=speed, boot_s=lambda config: None if config.get("block-size") == 32 else 20.0)
    install(machine, monkeypatch)
    found, _ = tune(machine, replace(settings, from_command=("bad=vllm serve m --block-size 32",)))
    assert machine.roles().count("incumbent") == 1 and "bad" not in [r.name for r in found.racers]


def test_the_result_of_a_study_is_an_incumbent_of_the_next(
    settings: RunSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(value=speed)
    install(machine, monkeypatch)
    found, _ = tune(machine, replace(settings, trials=1, out=tmp_path / "first"))
    earlier = replace(found, verdict="adopt", config=LaunchConfig.of({"max-num-seqs": 6}))
    (tmp_path / "result.json").write_text(json.dumps({"recommendation": earlier.to_json()}))
    plan = prepare(replace(settings, from_config=(f"last={tmp_path / 'result.json'}",)))
    assert [(i.name, i.config.get("max-num-seqs")) for i in plan.incumbents] == [("last", 6)]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"from_command": ["vllm serve m --no-such-flag 1"]}, "no --no-such-flag"),
        ({"from_command": ["a=vllm serve m --max-num-seqs 5", "a=vllm serve m"]}, "is taken"),
        ({"from_command": ["default=vllm serve m"]}, "is taken"),
        ({"from_config": ["missing.yaml"]}, "no such file"),
        ({"from_command": ["echo hello"]}, "starts no vLLM"),
        ({"from_command": ["vllm serve m --max-model-len 16"]}, "shorter than the workload"),
        ({"from_command": ["vllm serve a && vllm serve b"]}, "starts 2 vLLM servers"),
    ],
)
def test_what_cannot_be_tried_is_refused_before_anything_starts(
    settings: RunSettings, tmp_path: Path, given: dict[str, list[str]], said: str
) -> None:
    asked = resolve_settings(given, tmp_path / "none.yaml")
    with pytest.raises(UsageError, match=said):
        prepare(replace(settings, from_command=asked.from_command, from_config=asked.from_config))
    assert not (tmp_path / "o").exists()


def test_flags_of_every_engine_win_and_that_is_said(settings: RunSettings) -> None:
    plan = prepare(
        replace(settings, vllm_args=("--block-size=64",), from_command=("vllm serve m --block-size 32 -O1",))
    )
    assert plan.incumbents[0].config.get("block-size") == 64
    assert any("--block-size 32 gave way to --vllm-arg 64" in remark for remark in plan.remarks)


def test_an_incumbent_that_is_the_default_needs_no_trial(settings: RunSettings) -> None:
    plan = prepare(replace(settings, from_command=("vllm serve m --port 80",)))
    assert plan.incumbents == () and "starts the same engine as vLLM's defaults" in plan.remarks[-1]


def test_the_options_reach_the_run(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "autotune", "run", "--from-command", "x=vllm serve m --nonsense", "--gpu", "cpu"]
    python = make_fake_python(tmp_path / "venv")
    words = [*command, "--vllm-python", str(python)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "--from-command x: vLLM" in done.stderr and "Traceback" not in done.stderr
