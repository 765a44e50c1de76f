"""Launch commands of many kinds and versions: every planted mistake is found, and good ones pass without a word."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from autotune.check.check import Checked, check_target
from autotune.check.gpus import named_devices

ROWS: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("commands.yaml").read_text())
SIX = {"0.10.2", "0.20.2", "0.24.0", "0.26.0", "0.32.0", "0.33.0"}


def _check(row: dict[str, Any]) -> Checked:
    device = named_devices()[row.get("gpu", "h200")]
    report = check_target(row["command"], vllm=row.get("vllm", "0.32.0"), device=device, environ={"HF_HOME": "/none"})
    (checked,) = report.launches
    return checked


def _name(row: dict[str, Any]) -> str:
    return f"{row.get('vllm', '0.32.0')} {row['command'][:70]}"


@pytest.mark.parametrize("row", ROWS, ids=map(_name, ROWS))
def test_exactly_the_planted_mistakes_are_found(row: dict[str, Any]) -> None:
    checked = _check(row)
    grave = [finding for finding in checked.findings if finding.level != "advice"]
    assert Counter(f.code for f in grave) == Counter(row.get("find", [])), [f.what for f in grave]
    assert checked.clean == (not row.get("find"))
    advice = {finding.code for finding in checked.findings if finding.level == "advice"}
    assert set(row.get("advice", [])) <= advice
    for code, words in row.get("says", {}).items():
        texts = [f"{f.what} {f.why} {f.instead}" for f in checked.findings if f.code == code]
        assert any(words in text for text in texts), texts


def test_the_commands_cover_what_they_should() -> None:
    versions = Counter(row.get("vllm", "0.32.0") for row in ROWS)
    assert set(versions) >= SIX
    good = [row for row in ROWS if not row.get("find")]
    assert len(ROWS) >= 40 and len(good) >= 20 and len(ROWS) - len(good) >= 20


def test_every_finding_says_what_and_where() -> None:
    for row in ROWS:
        for finding in _check(row).findings:
            assert finding.what and finding.line >= 1
            assert finding.why or finding.instead
            assert not finding.what.endswith(".")
            if finding.level == "advice":
                assert finding.source


@pytest.mark.parametrize(
    "flags",
    [
        "--api-key sk-abcdef",
        "--api-key sk-abcdef --api-key sk-abcdeg",
        "--apikey sk-abcdef",
        "--port sk-abcdef --api_key=sk-abcdef",
    ],
)
def test_secrets_are_never_shown(flags: str) -> None:
    report = check_target(f"HF_TOKEN=hf_abcdef vllm serve Qwen/Qwen3-14B {flags}", vllm="0.32.0", environ={})
    (checked,) = report.launches
    assert {"secret-in-command", "secret-in-file"} <= {finding.code for finding in checked.findings}
    text = json.dumps(report.to_json())
    assert "sk-abcde" not in text and "hf_abcdef" not in text


def test_who_asked_for_a_context_is_not_advised_a_longer_one() -> None:
    command = "vllm serve Qwen/Qwen3-14B --dtype bfloat16 --max-model-len 8192"
    (finding,) = (f for f in _check({"command": command, "gpu": "rtx-4090"}).findings if f.code == "out-of-memory")
    assert finding.instead == "--quantization fp8 (changes precision), or more GPUs"
