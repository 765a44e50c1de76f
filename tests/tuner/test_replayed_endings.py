"""The end of a study through the real tuner, on a replayed machine: slimmed, soaked, and everything in the record."""

from dataclasses import replace
from pathlib import Path

import pytest
from fake_vllm import make_fake_python
from replayed_machine import Machine, install, settings_for, tune

from autotune.report.records import trial_records
from autotune.space.config import LaunchConfig
from autotune.store.store import Store
from autotune.tuner.settings import RunSettings

SPACE = """
schema: 1
name: replayed
parameters:
  block-size: {values: [default, 32], why: "fast"}
  stream-interval: {values: [default, 4], why: "does nothing"}
  max-num-seqs: {values: [64, default], why: "a little faster"}
seeds:
  - {name: both, flags: {block-size: 32, stream-interval: 4}, why: "x"}
  - {name: small, flags: {max-num-seqs: 64}, why: "x"}
"""


@pytest.fixture
def settings(tmp_path: Path) -> RunSettings:
    return settings_for(tmp_path, make_fake_python(tmp_path / "venv"), SPACE, trials=3, sampler="random")


def speed(config: LaunchConfig) -> float:
    fast = 1.4 if config.get("block-size") == 32 else 1.0
    return 1000.0 * fast * (1.2 if config.get("max-num-seqs") == 64 and fast == 1.0 else 1.0)


def test_the_winner_is_slimmed_raced_again_and_soaked(settings: RunSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(value=speed)
    install(machine, monkeypatch)
    found, _ = tune(machine, settings)
    assert found.config == LaunchConfig.of({"block-size": 32}) and found.verdict == "adopt"
    assert [(p.flag, p.kept) for p in found.parts] == [("block-size", True), ("stream-interval", False)]
    assert found.soak is not None and found.soak.seconds == 15
    assert found.racers[-1].config == found.config and len(found.racers[-1].rounds) == 2
    assert found == type(found).from_json(found.to_json())
    assert "1 flag not needed and dropped (--stream-interval)" in " ".join(found.reasons)
    assert machine.roles()[-1] == "soak" and machine.boots[-1][1].get("block-size") == 32
    boots = len(machine.boots)
    again, _ = tune(machine, settings)
    assert again.config == found.config and len(machine.boots) == boots, "a finished study boots nothing more"


def test_what_dies_under_the_soak_is_not_exported(settings: RunSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(value=speed, soak_kills=lambda config: config.get("block-size") == 32)
    install(machine, monkeypatch)
    found, _ = tune(machine, replace(settings, ablation=False))
    assert found.config == LaunchConfig.of({"max-num-seqs": 64})
    assert "did not hold at full load" in " ".join(found.reasons) and "oom_runtime" in " ".join(found.reasons)
    store = Store.open(f"sqlite:///{settings.out}/study.db")
    row = store.run("s")
    store.close()
    assert row is not None
    soaks = [r for r in trial_records(row) if r["role"] == "soak"]
    assert [r["failure"] and r["failure"]["class"] for r in soaks] == ["oom_runtime", None]
