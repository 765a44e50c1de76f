"""The budget on a replayed clock, through the real tuner: kept within 10 %, whatever boots do."""

from dataclasses import replace
from pathlib import Path

import pytest
from fake_vllm import make_fake_python
from replayed_machine import Machine, install, settings_for, tune

from autotune.errors import Interrupted
from autotune.search.study import open_study
from autotune.space.config import LaunchConfig
from autotune.tuner.settings import RunSettings

SPACE = """
schema: 1
name: replayed
parameters:
  max-num-seqs: {values: [2, 4, 8, 16, 32, 64, default], ordered: true, why: "limits the batch"}
  block-size: {values: [default, 32, 64], why: "matters"}
  stream-interval: {values: [default, 2, 4], why: "does nothing"}
seeds: []
"""


@pytest.fixture
def settings(tmp_path: Path) -> RunSettings:
    return settings_for(tmp_path, make_fake_python(tmp_path / "venv"), SPACE, sampler="random")


def speed(config: LaunchConfig) -> float:
    return 1000.0 * (1.3 if config.get("block-size") == 64 else 1.0)


@pytest.mark.parametrize("budget_s", [400, 1500])
def test_the_budget_is_kept_with_the_race_in_it(
    settings: RunSettings, monkeypatch: pytest.MonkeyPatch, budget_s: int
) -> None:
    machine = Machine(value=speed, compile_s=30)
    install(machine, monkeypatch)
    found, spent_s = tune(machine, replace(settings, budget_s=budget_s))
    assert 0.6 * budget_s <= machine.at <= 1.1 * budget_s
    assert spent_s == pytest.approx(machine.at, abs=3)
    assert machine.roles().count("final") >= 4
    assert found.verdict == "adopt" if budget_s == 1500 else found.verdict in ("adopt", "keep-default")


def test_two_incumbents_a_few_trials_and_two_rounds_of_four_fit_into_22_minutes(
    settings: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on an H200: hot plain boots of 57 s, 45 s of compilation, points of 25 s, of the race 41 s.
    machine = Machine(value=speed, boot_s=lambda c: 57.0, compile_s=45, point_s=20, race_point_s=30)
    install(machine, monkeypatch)
    commands = ("articles=vllm serve m --enable-chunked-prefill --max-num-seqs 5", "tp=vllm serve m --max-num-seqs 7")
    found, _ = tune(machine, replace(settings, budget_s=22 * 60, window_s=5, from_command=commands))
    roles = machine.roles()
    assert roles[:3] == ["baseline", "incumbent", "incumbent"]
    assert roles.count("trial") >= 2 and roles.count("final") == 8
    assert {r.name: len(r.rounds) for r in found.racers}.items() >= {"default": 2, "articles": 2, "tp": 2}.items()
    assert machine.at <= 1.1 * 22 * 60


def test_a_race_that_runs_late_takes_shorter_points_and_has_its_second_round(
    settings: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(value=speed, boot_s=lambda config: 46.0, compile_s=30, point_s=30, race_point_s=90)
    install(machine, monkeypatch)
    found, _ = tune(machine, replace(settings, budget_s=1200))
    assert machine.roles().count("final") == 4 and all(len(r.rounds) == 2 for r in found.racers)
    assert machine.at <= 1.1 * 1200


def test_a_boot_that_would_exceed_the_hard_end_is_given_up(
    settings: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(value=speed)

    def slower_and_slower(_: LaunchConfig) -> float:
        return 5000.0 if machine.roles().count("final") >= 3 else 20.0

    machine.boot_s = slower_and_slower
    install(machine, monkeypatch)
    found, spent_s = tune(machine, replace(settings, budget_s=600))
    assert machine.at <= 1.1 * 600 + 5 and spent_s <= 1.1 * 600 + 5
    # One whole round proves nothing.
    assert (found.verdict == "keep-default" and found.gain is None) or found.racers


def test_a_trial_that_takes_the_races_time_is_given_up_and_the_race_is_run(
    settings: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(value=speed)
    machine.boot_s = lambda config: 5000.0 if machine.roles()[-1:] == ["trial"] and machine.at > 200 else 20.0
    slow = [0]

    def one_hangs(config: LaunchConfig) -> float:
        if len(machine.boots) == 5 and not slow[0]:
            slow[0] = 1
            return 5000.0
        return 20.0

    machine.boot_s = one_hangs
    install(machine, monkeypatch)
    tune(machine, replace(settings, budget_s=900))
    assert slow[0] and machine.roles().count("final") >= 4
    assert machine.at <= 1.1 * 900
    assert any("would not have ended within the budget" in note for note in machine.notes)


def test_failed_boots_count(settings: RunSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    def boot_s(config: LaunchConfig) -> float | None:
        return None if config.get("max-num-seqs") is not None else 20.0

    machine = Machine(value=speed, boot_s=boot_s, fail_s=40)
    install(machine, monkeypatch)
    tune(machine, replace(settings, budget_s=900))
    assert machine.at <= 1.1 * 900


def test_a_resumed_study_has_only_the_time_that_is_left(settings: RunSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(value=speed, interrupt_after=300)
    install(machine, monkeypatch)
    asked = replace(settings, budget_s=900)
    with pytest.raises(Interrupted):
        tune(machine, asked)
    before_s = machine.at
    machine.stop = type(machine.stop)()
    _, spent_s = tune(machine, asked)
    assert before_s < 320 and machine.at <= 1.1 * 900
    assert spent_s == pytest.approx(machine.at, abs=3)


def test_it_stops_early_where_nothing_promising_is_left(settings: RunSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    install(machine, monkeypatch)
    few = SPACE.replace("[2, 4, 8, 16, 32, 64, default]", "[2, default]").replace("[default, 32, 64]", "[default, 32]")
    Path(settings.space).write_text(few)
    found, _ = tune(machine, replace(settings, budget_s=36_000, sampler="auto"))
    assert "Nothing promising is left to try." in machine.notes
    assert machine.at < 3600 and found.verdict == "keep-default"


def test_the_sampler_is_told_what_boots_and_points_took(settings: RunSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(value=speed, boot_s=lambda config: 33.0)
    install(machine, monkeypatch)
    tune(machine, replace(settings, trials=2))
    study = open_study("s", f"sqlite:///{settings.out}/study.db", "maximize")
    told = [trial.user_attrs["outcome"] for trial in study.get_trials()]
    assert [(o["boot_s"], o["cost_s"]) for o in told] == [(33.0, 33.0 + 30), (33.0, 33.0 + 2 + 10)]


def test_a_budget_without_room_for_a_trial_says_so(settings: RunSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(value=speed, boot_s=lambda config: 57.0, compile_s=45, race_point_s=90)
    install(machine, monkeypatch)
    asked = replace(settings, budget_s=900, race_window_s=40, from_command=("p=vllm serve m --max-num-seqs 5",))
    tune(machine, asked)
    assert machine.roles().count("trial") == 0 and machine.at <= 990
    assert any("The budget leaves no room for a trial and its race" in note for note in machine.notes)
