"""A tuner that dies while it asks for a warm boot leaves neither the warm server nor the engine behind."""

import json
import os
import time
from pathlib import Path

from fake_vllm import make_fake_python

from autotune.engine.environment import serve_arguments
from autotune.engine.install import resolve_install
from autotune.engine.process import find_marked
from autotune.engine.types import EngineSpec
from autotune.engine.warm import WarmServer
from autotune.space.config import LaunchConfig


def test_an_answer_that_nobody_reads_ends_everything(tmp_path: Path) -> None:
    spec = EngineSpec(
        install=resolve_install(make_fake_python(tmp_path / "venv")),
        model="tiny",
        config=LaunchConfig.of({}),
        run_id=f"warm-{os.getpid()}",
        log_path=tmp_path / "engine.log",
        cache_root=tmp_path / "cache",
    )
    server = WarmServer(spec, tmp_path / "warm.log")
    server.wait_ready()
    mark = "0123456789abcdef"
    words = serve_arguments(spec, mark, 1)
    request = {"op": "start", "argv": words, "mark": mark, "log": str(spec.log_path)}
    server._channel.sendall(json.dumps(request).encode() + b"\n")
    server._channel.close()
    end = time.monotonic() + 10
    while find_marked(spec.run_id) and time.monotonic() < end:
        time.sleep(0.05)
    assert find_marked(spec.run_id) == []
    assert "Traceback" not in (tmp_path / "warm.log").read_text()
