"""``autotune plan``: what would be tried and what it would cost, with nothing booted and nothing written."""

import json
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from fake_vllm import make_fake_python

from autotune.store.lock import file_url
from autotune.store.store import NewBoot, Store
from autotune.tuner.planning import look_ahead
from autotune.tuner.prepare import prepare
from autotune.tuner.settings import RunSettings


@pytest.fixture
def settings(tmp_path: Path) -> RunSettings:
    python = make_fake_python(tmp_path / "venv")
    command = ("prod=vllm serve m --max-num-seqs 5",)
    out = tmp_path / "outs/mine"
    return RunSettings(gpu="cpu", vllm_python=python, budget_s=1200, from_command=command, out=out, study="mine")


def boots(settings: RunSettings, *seconds: float) -> None:
    """Leave a study with plain boots of these seconds and points of ten."""
    plan = prepare(settings)
    plan.folder.create()
    store = Store.open(plan.storage)
    host = store.record_host(plan.host.fingerprint(), {})
    run = store.start_run(plan.study, host, plan.identity(), {})
    for boot_s in seconds:
        boot = store.add_boot(NewBoot(run, "trial", "plain", "key", {}, {}, ""))
        store.update_boot(boot, boot_s=boot_s, status="stopped", stop_s=2.0)
        store.add_point(boot, prompt_seed=1, live={}, value=1.0, measurement={}, duration_s=10.0)
    store.close()


def test_without_measurements_the_forecast_says_what_it_assumes_and_leaves_no_trace(settings: RunSettings) -> None:
    ahead = look_ahead(settings)
    assert settings.out and not settings.out.exists()
    assert [c.origin for c in ahead.outlook.first][:2] == ["baseline", "incumbent"]
    assert "nothing was measured here yet, so 90 s a boot" in ahead.forecast.rests_on
    assert 900 <= ahead.forecast.seconds <= 1200


def test_the_forecast_rests_on_this_studys_boots_or_on_those_beside_it(settings: RunSettings, tmp_path: Path) -> None:
    other = replace(settings, out=tmp_path / "outs/other", study="other", concurrency=4)
    boots(other, 30.0, 30.0)
    there = look_ahead(settings).forecast
    assert (there.boot_s, there.point_s) == (30.0, 10.0) and "2 boots of other studies" in there.rests_on
    boots(settings, 4.0, 5.0, 6.0)
    here = look_ahead(settings).forecast
    assert here.boot_s == 5.0 and here.rests_on == "3 boots of this study"
    parts = {part.name: part for part in here.parts}
    # Two rounds of the default, the incumbent and two finalists; a race's point may take ten seconds more.
    assert parts["final race"].boots == 8 and parts["final race"].seconds == 8 * (5 + 2 + 10 + 10)
    assert parts["baseline"].seconds == 5 + 2 + 30
    assert 1170 <= here.seconds <= 1200


def test_the_command_prints_the_same_for_people_and_as_json(settings: RunSettings, tmp_path: Path) -> None:
    words = ["plan", "--gpu", "cpu", "--trials", "4", "--vllm-python", str(settings.vllm_python), "--json"]
    command = [sys.executable, "-m", "autotune", *words, "--from-command", "vllm serve m --max-num-seqs 5"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["first"][1] == {
        "origin": "incumbent",
        "name": "incumbent",
        "flags": {"max-num-seqs": 5},
        "env": {},
        "predicted": None,
        "skipped": None,
    }
    assert found["impossible"][0]["reason"] == "max-num-batched-tokens >= max-num-seqs"
    assert [p["name"] for p in found["forecast"]["parts"]] == [
        "baseline",
        "incumbent incumbent",
        "search",
        "final race",
    ]
    assert not (tmp_path / "autotune-out").exists()


@pytest.mark.parametrize("name", ["new.db", "empty.db", "foreign.db", "what? #1 %41.db"])
def test_a_storage_that_a_run_could_use_is_left_as_it_is(settings: RunSettings, tmp_path: Path, name: str) -> None:
    (tmp_path / "empty.db").touch()
    with sqlite3.connect(tmp_path / "foreign.db") as foreign:
        foreign.execute("create table theirs (id integer)")
    before = {path: path.read_bytes() for path in tmp_path.glob("*.db")}
    url = file_url(tmp_path / name)
    assert look_ahead(replace(settings, storage=url)).told == 0
    assert {path: path.read_bytes() for path in tmp_path.glob("*.db*")} == before
    Store.open(url).close()
    assert (tmp_path / name).is_file()


def test_a_folder_with_any_letters_holds_its_own_database(settings: RunSettings, tmp_path: Path) -> None:
    odd = replace(settings, out=tmp_path / "what? #1 %41")
    boots(odd, 4.0)
    assert look_ahead(odd).forecast.rests_on == "1 boots of this study"
    assert (tmp_path / "what? #1 %41/study.db").is_file()
