"""What ``autotune export`` writes, ``autotune check`` finds nothing wrong with."""

from dataclasses import replace
from pathlib import Path

import pytest
from recommendations import HUB

from autotune.cli.main import run_command
from autotune.export.formats import FORMATS
from autotune.space.config import LaunchConfig

SOUND = replace(
    HUB,
    config=LaunchConfig.of(
        {"max-num-seqs": 512, "max-num-batched-tokens": 16384, "enable-prefix-caching": False},
        {"VLLM_HOST_IP": "127.0.0.1"},
    ),
    fixed=LaunchConfig.of({"max-model-len": 8192, "compilation-config": '{"cudagraph_mode": "FULL_AND_PIECEWISE"}'}),
)


@pytest.mark.parametrize("name", ["vllm", "shell", "systemd", "docker", "compose", "kubernetes", "kserve"])
def test_no_fault_is_found(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / FORMATS[name].file_name
    file.write_text(FORMATS[name].render(SOUND))
    code = run_command(["check", str(file), "--vllm", "0.32.0", "--gpu", "h200"])
    assert code == 0, capsys.readouterr().out


def test_a_planted_fault_is_found(tmp_path: Path) -> None:
    file = tmp_path / "launch.sh"
    file.write_text(FORMATS["shell"].render(SOUND).replace("--max-num-seqs", "--max-nums-seqs"))
    assert run_command(["check", str(file), "--vllm", "0.32.0", "--gpu", "h200"]) == 1
