"""Live limits on real vLLM: taken, read back, effective, and no request lost."""

import concurrent.futures
import json
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace

import pytest

from autotune.engine.boot import boot
from autotune.engine.demo_model import default_demo_folder, write_demo_model
from autotune.engine.engine import Engine
from autotune.engine.install import VllmInstall
from autotune.engine.live import LiveLimits, LiveUnavailable, set_limits, with_live_limits
from autotune.engine.types import EngineSpec
from autotune.space.config import LaunchConfig

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(900)]

CPU = LaunchConfig.of(
    {
        "enforce-eager": True,
        "distributed-executor-backend": "uni",
        "kv-cache-memory-bytes": "64M",
        "max-model-len": 1024,
        "max-num-seqs": 32,
        "max-num-batched-tokens": 2048,
    },
    {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
)


@pytest.fixture(scope="module")
def engine(vllm: VllmInstall, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("live")
    spec = EngineSpec(
        install=vllm,
        model=str(write_demo_model(default_demo_folder())),
        config=CPU,
        run_id="live-limits",
        log_path=folder / "engine.log",
        cache_root=folder / "cache",
    )
    with boot(with_live_limits(spec)) as running:
        yield running


def complete(engine: Engine, seed: int, tokens: int = 64) -> int:
    prompt = [10 + (seed * 7919 + i) % 4000 for i in range(64)]
    body = {"model": engine.model_name, "prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "temperature": 0}
    request = urllib.request.Request(
        f"{engine.base_url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=240) as answer:
        count: int = json.load(answer)["usage"]["completion_tokens"]
        return count


def most_running(engine: Engine, requests: int) -> float:
    """The largest number of running requests seen while ``requests`` are sent at once; all must be answered in full."""
    seen = 0.0
    with concurrent.futures.ThreadPoolExecutor(requests) as pool:
        futures = [pool.submit(complete, engine, seed) for seed in range(requests)]
        while not all(f.done() for f in futures):
            seen = max(seen, engine.metrics().running)
            time.sleep(0.02)
        assert [f.result() for f in futures] == [64] * requests
    return seen


@pytest.mark.parametrize("seqs", [2, 8, 1, 16])
def test_the_engine_runs_no_more_requests_than_the_limit_and_loses_none(engine: Engine, seqs: int) -> None:
    assert set_limits(engine, LiveLimits(seqs=seqs, tokens=512)) == LiveLimits(seqs, 512)
    assert most_running(engine, 17) == seqs


def test_a_limit_above_the_boots_is_capped_and_none_restores_it(engine: Engine) -> None:
    assert set_limits(engine, LiveLimits(seqs=999, tokens=99_999)) == LiveLimits(32, 2048)
    set_limits(engine, LiveLimits(seqs=2))
    assert set_limits(engine, LiveLimits()) == LiveLimits(32, 2048)


def test_limits_do_not_move_under_a_running_request(engine: Engine) -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(complete, engine, 1, 900)
        while not engine.metrics().pending:
            assert not running.done()
        with pytest.raises(LiveUnavailable, match="requests are running"):
            set_limits(engine, LiveLimits(seqs=1))
        assert running.result() == 900


def test_another_scheduler_rules_it_out(engine: Engine) -> None:
    with pytest.raises(LiveUnavailable):
        with_live_limits(replace(engine.spec, config=LaunchConfig.of({"scheduler-cls": "a.B"})))
