"""Real vLLM for the end-to-end tests: the Python that has it, or a reason to skip, and one warm server for all."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autotune.engine.demo_model import default_demo_folder, write_demo_model
from autotune.engine.install import VllmInstall, find_installs
from autotune.engine.types import EngineSpec
from autotune.engine.warm import WarmServer
from autotune.errors import AutotuneError
from autotune.space.config import LaunchConfig

RUN = f"e2e-{os.getpid()}"
CPU = LaunchConfig.of(
    {
        "enforce-eager": True,
        "distributed-executor-backend": "uni",
        "kv-cache-memory-bytes": "64M",
        "max-model-len": 512,
        "max-num-seqs": 16,
    },
    {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
)


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


@pytest.fixture(scope="session")
def spec_of(vllm: VllmInstall, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], EngineSpec]:
    """Small engines of one study by their log: one environment for all, which pytest would change with every test."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    cache = tmp_path_factory.mktemp("cache")
    model = str(write_demo_model(default_demo_folder()))

    def make(log_path: Path) -> EngineSpec:
        return EngineSpec(
            install=vllm,
            model=model,
            config=CPU,
            run_id=RUN,
            log_path=log_path,
            cache_root=cache,
            environ=environ,
        )

    return make


@pytest.fixture(scope="session")
def warm(spec_of: Callable[[Path], EngineSpec], tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmServer]:
    """vLLM imported once, for every engine whose kind of boot is not what its test is about."""
    folder = tmp_path_factory.mktemp("warm")
    with WarmServer(spec_of(folder / "unused.log"), folder / "warm.log") as server:
        server.wait_ready()
        yield server
