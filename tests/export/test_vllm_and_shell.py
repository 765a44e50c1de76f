import json
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from autotune.errors import UsageError
from autotune.export import shell, vllm
from autotune.export.files import write_atomic
from autotune.space.config import LaunchConfig
from autotune.store.recommendation import Interval, Provenance, Recommendation

PROVENANCE = Provenance(
    study="s",
    measured_at="2026-01-02",
    autotune_version="0.1.0",
    vllm_version="0.32.0",
    vllm_distribution="vllm",
    host_fingerprint="0123456789ab",
    device="NVIDIA H200",
    driver="580.1",
    model="/models/o'brien's model",
    model_revision="unknown",
    workload="chat",
    objective="throughput",
    retune_when="vLLM changes",
)
RECOMMENDATION = Recommendation(
    verdict="adopt",
    config=LaunchConfig.of(
        {"max-num-seqs": 64, "enable-prefix-caching": False, "compilation-config": '{"mode": 3}'},
        {"VLLM_X": "a b"},
    ),
    fixed=LaunchConfig.of({"max-model-len": 4096, "enforce-eager": True}),
    unit="tok/s",
    baseline=Interval(100, 99, 101),
    best=Interval(141, 138, 144),
    gain=Interval(0.41, 0.38, 0.44),
    reasons=("won",),
    boot_s=17.0,
    provenance=PROVENANCE,
)


def test_a_recommendation_survives_json() -> None:
    text = json.dumps(RECOMMENDATION.to_json())
    assert Recommendation.from_json(json.loads(text)) == RECOMMENDATION


def test_another_schema_is_refused() -> None:
    with pytest.raises(ValueError, match="schema_version 99"):
        Recommendation.from_json({**RECOMMENDATION.to_json(), "schema_version": 99})


def test_vllm_yaml_holds_every_flag_and_the_head_holds_the_evidence() -> None:
    text = vllm.render(RECOMMENDATION)
    assert yaml.safe_load(text) == {
        "max-num-seqs": 64,
        "no-enable-prefix-caching": True,
        "compilation-config": {"mode": 3},
        "max-model-len": 4096,
        "enforce-eager": True,
    }
    assert "+41.0 % (95 % interval +38.0 to +44.0 %)" in text and "#   VLLM_X=a b" in text


def test_no_flags_is_still_a_mapping() -> None:
    bare = replace(RECOMMENDATION, config=LaunchConfig(), fixed=LaunchConfig())
    assert yaml.safe_load(vllm.render(bare)) == {}


def test_the_shell_script_gives_vllm_exactly_the_arguments(tmp_path: Path) -> None:
    script, stub = tmp_path / "launch.sh", tmp_path / "vllm"
    write_atomic(script, shell.render(RECOMMENDATION), executable=True)
    stub.write_text('#!/bin/sh\nprintf "%s\\n" "$VLLM_X" "$@"\n')
    stub.chmod(0o755)
    done = subprocess.run([script, "--extra"], env={"VLLM": str(stub), "PORT": "9"}, capture_output=True, text=True)
    variable, *words = done.stdout.splitlines()
    assert variable == "a b" and done.returncode == 0
    assert words == [
        "serve", PROVENANCE.model, "--host", "127.0.0.1", "--port", "9",
        *RECOMMENDATION.launch.argv(), "--extra",
    ]  # fmt: skip


def test_a_written_file_is_whole_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    write_atomic(tmp_path / "best" / "x.yaml", "a: 1\n")
    assert [p.name for p in (tmp_path / "best").iterdir()] == ["x.yaml"]


def test_a_place_that_cannot_be_written_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=shlex.quote("/proc/none/x.yaml")):
        write_atomic(Path("/proc/none/x.yaml"), "")
