"""Flags of one published version on another: renamed, dropped, lost, and what kept its meaning."""

import json
from itertools import pairwise

import pytest

from autotune.engine.flags import FlagTable
from autotune.engine.releases import load_releases
from autotune.retune.migrate import changed_meaning, migrate
from autotune.space.config import LaunchConfig

RELEASES = load_releases()


def table(version: str) -> FlagTable:
    return RELEASES.table(RELEASES.nearest(version))


def test_what_both_versions_have_stays_word_for_word() -> None:
    config = LaunchConfig.of({"max-num-seqs": 64, "enable-prefix-caching": False}, {"HF_HUB_OFFLINE": "1"})
    found = migrate(config, table("0.32"))
    assert found.same and found.config == config


def test_a_flag_that_went_into_a_json_setting_goes_there_with_its_value() -> None:
    found = migrate(LaunchConfig.of({"guided-decoding-backend": "xgrammar"}), table("0.32"))
    assert json.loads(str(found.config.get("structured-outputs-config"))) == {"backend": "xgrammar"}
    assert [c.kind for c in found.changes] == ["renamed"]
    assert "--guided-decoding-backend xgrammar is --structured-outputs-config" in found.changes[0].text


def test_two_flags_of_one_json_setting_are_laid_together() -> None:
    old = LaunchConfig.of({"eplb-window-size": 10, "eplb-step-interval": 20, "num-redundant-experts": 2})
    found = migrate(old, table("0.32"))
    assert json.loads(str(found.config.get("eplb-config"))) == {
        "window_size": 10,
        "step_interval": 20,
        "num_redundant_experts": 2,
    }


@pytest.mark.parametrize("flags", [{"swap-space": 4}, {"use-v2-block-manager": True}, {"num-scheduler-steps": 8}])
def test_what_nothing_took_the_place_of_is_dropped_and_said(flags: dict[str, int]) -> None:
    found = migrate(LaunchConfig.of({**flags, "max-num-seqs": 8}), table("0.32"))
    assert found.config == LaunchConfig.of({"max-num-seqs": 8})
    assert [c.kind for c in found.changes] == ["dropped"] and next(iter(flags)) in found.changes[0].text


def test_a_variable_that_became_a_flag_is_one() -> None:
    found = migrate(
        LaunchConfig.of({}, {"VLLM_ATTENTION_BACKEND": "FLASH_ATTN", "OMP_NUM_THREADS": "4"}), table("0.32")
    )
    assert found.config.get("attention-backend") == "FLASH_ATTN"
    assert found.config.env == (("OMP_NUM_THREADS", "4"),)


def test_what_only_a_person_can_translate_is_left_out_with_advice() -> None:
    found = migrate(LaunchConfig.of({"rope-scaling": '{"factor": 4.0}'}), table("0.32"))
    assert found.config == LaunchConfig() and [c.kind for c in found.changes] == ["lost"]
    assert "--hf-overrides" in found.changes[0].text


def test_a_value_that_is_refused_now_is_lost_with_the_reason() -> None:
    found = migrate(LaunchConfig.of({"max-num-seqs": "many"}), table("0.32"))
    assert found.config == LaunchConfig() and "whole number" in found.changes[0].text


@pytest.mark.parametrize("version", ["0.10", "0.20", "0.24", "0.26", "0.32", "0.33"])
def test_what_comes_out_is_taken_by_the_version_it_is_for(version: str) -> None:
    new = table(version)
    for old_version in ("0.8", "0.20", "0.32"):
        old = table(old_version)
        flags = {f.name: f.default for f in old.flags if isinstance(f.default, bool | int | float | str)}
        found = migrate(LaunchConfig.of(flags), new)
        assert [why for name, value in found.config.flags if (why := new.why_not(name, value))] == []


def test_defaults_that_moved_are_named() -> None:
    versions = [v for v in RELEASES.versions if v >= "0.20"]
    moved = {}
    for before, after in pairwise(versions):
        old, new = table(before), table(after)
        moved |= changed_meaning([f.name for f in old.flags if new.get(f.name)], old, new)
    assert any("the default of" in why for why in moved.values())
    same = table("0.32")
    assert changed_meaning([f.name for f in same.flags], same, same) == {}
