import json
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from recommendations import FOLDER, PROVENANCE

from autotune.errors import UsageError
from autotune.export import shell, vllm
from autotune.export.files import write_atomic
from autotune.space.config import LaunchConfig
from autotune.store.recommendation import Recommendation


def test_a_recommendation_survives_json() -> None:
    text = json.dumps(FOLDER.to_json())
    assert Recommendation.from_json(json.loads(text)) == FOLDER


def test_another_schema_is_refused() -> None:
    with pytest.raises(ValueError, match="schema_version 99"):
        Recommendation.from_json({**FOLDER.to_json(), "schema_version": 99})


def test_vllm_yaml_holds_every_flag_and_the_head_holds_the_evidence() -> None:
    text = vllm.render(FOLDER)
    assert yaml.safe_load(text) == {
        "max-num-seqs": 64,
        "no-enable-prefix-caching": True,
        "compilation-config": {"mode": 3},
        "max-model-len": 4096,
        "enforce-eager": True,
    }
    assert "+41.0 % (95 % interval +38.0 to +44.0 %)" in text and "#   VLLM_X=a b" in text


def test_no_flags_is_still_a_mapping() -> None:
    bare = replace(FOLDER, config=LaunchConfig(), fixed=LaunchConfig())
    assert yaml.safe_load(vllm.render(bare)) == {}


def test_the_shell_script_gives_vllm_exactly_the_arguments(tmp_path: Path) -> None:
    script, stub = tmp_path / "launch.sh", tmp_path / "vllm"
    write_atomic(script, shell.render(FOLDER), executable=True)
    stub.write_text('#!/bin/sh\nprintf "%s\\n" "$VLLM_X" "$@"\n')
    stub.chmod(0o755)
    done = subprocess.run([script, "--extra"], env={"VLLM": str(stub), "PORT": "9"}, capture_output=True, text=True)
    variable, *words = done.stdout.splitlines()
    assert variable == "a b" and done.returncode == 0
    assert words == [
        "serve", PROVENANCE.model, "--host", "127.0.0.1", "--port", "9",
        *FOLDER.launch.argv(), "--extra",
    ]  # fmt: skip


def test_a_written_file_is_whole_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    write_atomic(tmp_path / "best" / "x.yaml", "a: 1\n")
    assert [p.name for p in (tmp_path / "best").iterdir()] == ["x.yaml"]


def test_a_place_that_cannot_be_written_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=shlex.quote("/proc/none/x.yaml")):
        write_atomic(Path("/proc/none/x.yaml"), "")
