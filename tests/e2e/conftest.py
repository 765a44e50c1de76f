"""Real vLLM for the end-to-end tests: the Python that has it, or a reason to skip."""

import os
from pathlib import Path

import pytest

from autotune.engine.install import VllmInstall, find_installs
from autotune.errors import AutotuneError


@pytest.fixture(scope="session")
def vllm() -> VllmInstall:
    """A working vLLM: AUTOTUNE_VLLM_PYTHON if set, else one that can be found."""
    given = os.environ.get("AUTOTUNE_VLLM_PYTHON")
    try:
        found = find_installs(Path(given) if given else None)
    except AutotuneError as error:
        pytest.skip(str(error))
    working = [install for install in found if not install.problems]
    if not working:
        pytest.skip("no working vLLM on this machine: `make install` brings one, or set AUTOTUNE_VLLM_PYTHON")
    return working[0]
