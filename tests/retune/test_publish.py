"""Files that launchers read are replaced whole or not at all, and the text before stays."""

import os
from pathlib import Path

import pytest
from retune_studies import recommendation, write_study

from autotune.errors import UsageError
from autotune.retune.publish import parse_exports, publish, roll_back
from autotune.space.config import LaunchConfig


def test_two_adoptions_keep_one_step_back_and_a_rollback_can_be_undone(tmp_path: Path) -> None:
    first = recommendation(tmp_path)
    root = write_study(tmp_path / "study", first, None)
    python = tmp_path / "python"
    texts = []
    for seqs in (32, 64):
        second = recommendation(tmp_path, version="0.32.0", config=LaunchConfig.of({"max-num-seqs": seqs}))
        publish(root, second, first, python, ())
        texts.append((root / "best/vllm.yaml").read_text())
    assert (root / "best/vllm.yaml.previous").read_text() == texts[0]
    assert os.access(root / "best/launch.sh", os.X_OK) and os.access(root / "best/launch.sh.previous", os.X_OK)
    assert roll_back(root, ())[-1] == root / "retune/incumbent.json"
    assert (root / "best/vllm.yaml").read_text() == texts[0]
    roll_back(root, ())
    assert (root / "best/vllm.yaml").read_text() == texts[1]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real.yaml", tmp_path / "link.yaml"
    real.write_text("old\n")
    link.symlink_to(real)
    root = tmp_path / "study"
    found = recommendation(tmp_path)
    publish(root, found, found, tmp_path / "python", parse_exports([f"vllm={link}"]))
    assert link.is_symlink() and "max-num-seqs" in real.read_text()
    assert (tmp_path / "link.yaml.previous").read_text() == "old\n"


@pytest.mark.parametrize("text", ["vllm", "vllm=", "nonsense=x"])
def test_an_export_needs_a_known_format_and_a_file(text: str) -> None:
    with pytest.raises(UsageError):
        parse_exports([text])
