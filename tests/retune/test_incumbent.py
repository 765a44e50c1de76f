"""Where the configuration in production is found, and what each vLLM version keeps to itself."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from retune_studies import recommendation, write_study

from autotune.engine.install import VllmInstall
from autotune.errors import UsageError
from autotune.export.registry import register
from autotune.retune.incumbent import Incumbent, find_incumbent
from autotune.retune.plans import RetuneSettings, engine_folder, old_install
from autotune.retune.publish import publish
from autotune.store.store import NewBoot, Store


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)


def test_a_folder_a_name_and_a_registry_entry_lead_to_the_same(tmp_path: Path) -> None:
    found = recommendation(tmp_path)
    study = write_study(tmp_path / "autotune-out/s", found, None)
    entry = register(found)
    assert entry is not None
    for name in (str(study), "s", str(study / "best/result.json"), str(entry)):
        incumbent = find_incumbent(name)
        assert incumbent.recommendation.config == found.config
        assert (incumbent.workload, incumbent.concurrency) == ("demo", 16)
        assert incumbent.root == study.resolve()


def test_a_registry_entry_is_known_by_its_own_name_and_by_its_study(tmp_path: Path) -> None:
    entry = register(recommendation(tmp_path))
    assert entry is not None
    assert find_incumbent(entry.stem).root == find_incumbent("s").root == tmp_path / "autotune-out/s"


def test_what_was_adopted_last_is_the_incumbent(tmp_path: Path) -> None:
    found = recommendation(tmp_path)
    study = write_study(tmp_path / "study", found, None)
    newer = replace(found, provenance=replace(found.provenance, vllm_version="0.32.0"))
    publish(study, newer, found, tmp_path / "python", ())
    assert find_incumbent(str(study)).recommendation.provenance.vllm_version == "0.32.0"


def test_earlier_trials_come_from_the_study_best_first_without_lowered_limits(tmp_path: Path) -> None:
    study = write_study(tmp_path / "study", recommendation(tmp_path), None)
    store = Store.open(f"sqlite:///{study / 'study.db'}")
    run = store.start_run("s", store.record_host("f", {}), {"workload": "chat", "concurrency": 8}, {})
    result = {"recommendation": recommendation(tmp_path).to_json()}
    store.update_run(run, result=result, status="finished")
    for seqs, value, live in ((8, 50.0, {}), (64, 90.0, {}), (64, 10.0, {"max-num-seqs": 1}), (32, 70.0, {})):
        boot = store.add_boot(NewBoot(run, "trial", "plain", str(seqs), {"max-num-seqs": seqs}, {}, ""))
        store.add_point(boot, prompt_seed=1, live=live, value=value, measurement={}, duration_s=1.0)
    store.close()
    incumbent = find_incumbent(str(study))
    assert [e.config.get("max-num-seqs") for e in incumbent.earlier] == [64, 32, 8]
    assert (incumbent.workload, incumbent.concurrency) == ("chat", 8)


def test_nothing_feasible_is_nothing_to_keep_true(tmp_path: Path) -> None:
    found = replace(recommendation(tmp_path), verdict="nothing-feasible")
    study = write_study(tmp_path / "study", recommendation(tmp_path), None)
    (study / "best/result.json").write_text(json.dumps({"recommendation": found.to_json()}))
    with pytest.raises(UsageError, match="nothing to keep true"):
        find_incumbent(str(study))


def install(tmp_path: Path, version: str) -> VllmInstall:
    return VllmInstall(tmp_path / version / "python", version, "vllm", tmp_path / version / "vllm")


def test_an_upgrade_starts_with_an_empty_cache_and_only_the_version_before_keeps_its_own(tmp_path: Path) -> None:
    incumbent = Incumbent(recommendation(tmp_path), None, tmp_path / "study")
    folders = []
    for version in ("0.30.0", "0.31.0", "0.32.0"):
        folder = engine_folder(incumbent, install(tmp_path, version), "new")
        assert list(folder.cache.iterdir()) == []
        (folder.cache / "compiled").write_text(version)
        folders.append(folder)
    assert not folders[0].root.exists()
    assert [(f.cache / "compiled").read_text() for f in folders[1:]] == ["0.31.0", "0.32.0"]
    assert (engine_folder(incumbent, install(tmp_path, "0.32.0"), "new").cache / "compiled").exists()


def test_a_version_that_was_replaced_in_its_place_is_not_taken_for_the_old_one(tmp_path: Path) -> None:
    from fake_vllm import make_fake_python

    python = make_fake_python(tmp_path / "venv", version="0.32.0")
    incumbent = Incumbent(recommendation(tmp_path, version="0.31.0"), python, tmp_path / "study")
    assert old_install(incumbent, RetuneSettings(study="s")) is None
    same = replace(incumbent, recommendation=recommendation(tmp_path, version="0.32.0"))
    kept = old_install(same, RetuneSettings(study="s"))
    assert kept is not None and kept.version == "0.32.0"
