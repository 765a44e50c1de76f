"""SIGKILL at random moments of a study: nothing is left behind, nothing foreign is touched, nothing is lost."""

import os
from pathlib import Path

import pytest
from chaos_monkey import Chaos, study_command
from fake_vllm import make_fake_python

CYCLES = 10


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_kills_at_random_moments_leave_nothing_and_lose_nothing(tmp_path: Path) -> None:
    python = make_fake_python(tmp_path / "venv", {"time_scale": 0.3})
    command = study_command(tmp_path, python, f"chaos-{os.getpid()}")
    counts = Chaos(tmp_path, command, longest_s=5.0, seed=20).run(CYCLES)
    assert counts.clean, str(counts)
    assert counts.cycles == CYCLES and counts.points > 0
