"""Real vLLM, booted plainly and warm: proven ready, killed in every way, and nothing is left behind."""

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.engine import probe, procfs
from autotune.engine.boot import BootHooks, boot
from autotune.engine.deadlines import Deadlines
from autotune.engine.engine import Engine
from autotune.engine.environment import engine_command, engine_environment
from autotune.engine.process import Family, find_marked, start
from autotune.engine.types import BootFailed, EngineSpec
from autotune.engine.warm import WarmServer
from autotune.errors import Interrupted
from autotune.space.config import LaunchConfig

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


@pytest.fixture
def spec(spec_of: Callable[[Path], EngineSpec], tmp_path: Path) -> Iterator[EngineSpec]:
    """An engine that may be booted; what a test leaves of it is an error."""
    spec = spec_of(tmp_path / "engine.log")
    yield spec
    left = [stat for stat in find_marked(spec.run_id) if "runpy" not in procfs.command_line(stat.pid)]
    for stat in left:
        os.kill(stat.pid, signal.SIGKILL)
    assert left == []


def until(condition: Callable[[], object], limit_s: float) -> float:
    """Wait for the condition; seconds that it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < limit_s, "condition never came true"
        time.sleep(0.05)
    return time.monotonic() - began


def process_tree(engine: Engine) -> list[str]:
    """Titles of the engine's processes, without Python's helpers."""
    names = (stat.name for pid in engine.pids() if (stat := procfs.read_stat(pid)))
    titles = ["EngineCore" if name.startswith("VLLM::EngineCor") else "server" for name in names]
    trackers = sum("resource_tracker" in procfs.command_line(pid) for pid in engine.pids())
    return sorted(titles)[: len(titles) - trackers]


def answers(engine: Engine) -> str:
    body = {
        "model": engine.model_name,
        "prompt": [5, 6, 7, 8],
        "max_tokens": 12,
        "temperature": 0.0,
        "ignore_eos": True,
    }
    text: str = probe.ask(engine.port, "/v1/completions", body=body, limit_s=60).json()["choices"][0]["text"]
    return text


def assert_an_orphan_is_ended(engine: Engine) -> None:
    """Kill the API server: vLLM leaves its engine process behind, and ``stop`` ends it."""
    os.kill(engine.pid, signal.SIGKILL)
    until(lambda: not engine.alive(), 10)
    until(lambda: process_tree(engine) == ["EngineCore"], 5)
    time.sleep(0.5)
    assert process_tree(engine) == ["EngineCore"], "vLLM leaves its engine process behind"
    assert probe.listener(engine.port, engine.pids) == "nobody"
    failure = engine.failure()
    assert failure is not None and failure.cls.name == "killed"
    report = engine.stop()
    assert (report.exit_code, report.survivors, engine.pids()) == (-signal.SIGKILL, (), ())


def test_a_warm_boot_is_the_same_engine_as_a_plain_one_and_far_quicker(spec: EngineSpec, warm: WarmServer) -> None:
    """The plain engine, whose boot is dear, then loses its API server."""
    with boot(spec) as plain:
        assert plain.report.kind == "plain"
        plain_text, plain_tree, plain_config = answers(plain), process_tree(plain), plain.resolved_config()
        assert_an_orphan_is_ended(plain)
    with boot(spec, warm=warm) as forked:
        assert forked.report.kind == "warm", forked.report.notes
        assert answers(forked) == plain_text
        assert process_tree(forked) == plain_tree == ["EngineCore", "server"]
        assert forked.resolved_config()["scheduler_config"] == plain_config["scheduler_config"]
        assert forked.report.kv_tokens == plain.report.kv_tokens == 65536
        assert set(forked.report.phases_s) >= {"config", "weights", "profile", "server"}
    assert forked.report.boot_s < plain.report.boot_s / 2


def test_a_compiled_engine_says_how_long_it_compiled(spec: EngineSpec, warm: WarmServer) -> None:
    with boot(replace(spec, config=spec.config.without("enforce-eager")), warm=warm) as engine:
        assert engine.report.phases_s["compile"] > 0.5
        assert answers(engine)


def test_counters_follow_requests_and_the_prefix_cache_can_be_emptied(spec: EngineSpec, warm: WarmServer) -> None:
    with boot(spec, warm=warm) as engine:
        before = engine.metrics()
        answers(engine)
        after = engine.metrics()
        assert after.generation_tokens - before.generation_tokens == 12
        assert after.prompt_tokens - before.prompt_tokens == 4
        assert after.kv_tokens == 65536 and after.pending == 0
        assert engine.reset_prefix_cache() and engine.watchdog() is None


def test_a_killed_api_server_leaves_an_orphan_that_stop_ends(spec: EngineSpec, warm: WarmServer) -> None:
    assert_an_orphan_is_ended(boot(spec, warm=warm))


def test_a_killed_engine_process_is_a_failure_although_vllm_exits_with_zero(spec: EngineSpec, warm: WarmServer) -> None:
    with boot(spec, warm=warm) as engine:
        core = next(pid for pid in engine.pids() if (s := procfs.read_stat(pid)) and s.name.startswith("VLLM::"))
        os.kill(core, signal.SIGKILL)
        until(lambda: not engine.alive(), 30)
        failure = engine.watchdog()
        assert failure is not None and not failure.teaches
        assert failure.cls.name in ("engine_died", "killed", "exited")
        assert engine.stop().survivors == ()


def test_sigterm_in_the_start_does_not_keep_us(spec: EngineSpec) -> None:
    engine_id = "0123456789abcdef"
    argv = engine_command(spec, engine_id, probe.free_port())
    leader = start(argv, env=engine_environment(spec, engine_id), log_path=spec.log_path)
    family = Family(leader, spec.run_id, engine_id)
    try:
        until(lambda: b"Initializing a V1 LLM engine" in spec.log_path.read_bytes() or len(family.members()) > 2, 120)
        os.killpg(leader.id.pid, signal.SIGTERM)
        time.sleep(1.0)
    finally:
        report = family.stop(grace_s=3.0)
    assert report.survivors == () and family.members() == []
    assert report.stop_s < 10


@pytest.mark.parametrize("kind", ["plain", "warm"])
def test_a_stop_request_in_the_start_ends_everything_at_once(spec: EngineSpec, warm: WarmServer, kind: str) -> None:
    seen: list[str] = []
    asked_at: list[float] = []

    def stop_requested() -> bool:
        if seen and seen[-1] != "imports" and not asked_at:
            asked_at.append(time.monotonic())
        return bool(asked_at)

    hooks = BootHooks(on_phase=lambda name, _: seen.append(name), stop_requested=stop_requested)
    with pytest.raises(Interrupted):
        boot(spec, warm=warm if kind == "warm" else None, hooks=hooks)
    assert time.monotonic() - asked_at[0] < 5
    assert warm.broken is None


def test_a_stopped_engine_process_is_a_hang_that_ends_in_bounded_time(spec: EngineSpec, warm: WarmServer) -> None:
    def freeze(name: str, _: float) -> None:
        if name == "weights":
            for stat in find_marked(spec.run_id):
                if stat.name.startswith("VLLM::EngineCor"):
                    os.kill(stat.pid, signal.SIGSTOP)

    began = time.monotonic()
    with pytest.raises(BootFailed) as caught:
        boot(spec, hooks=BootHooks(on_phase=freeze), deadlines=Deadlines(idle_s=8.0, quiet_s=5.0))
    assert caught.value.failure.cls.name == "boot_hang"
    assert time.monotonic() - began < 180


def test_impossible_flags_fail_alike_in_both_kinds(spec: EngineSpec, warm: WarmServer) -> None:
    impossible = replace(spec, config=spec.config.merged(LaunchConfig.of({"max-num-batched-tokens": 8})))
    with pytest.raises(BootFailed) as caught:
        boot(impossible, warm=warm)
    assert caught.value.failure.cls.name == "invalid_combination"
    assert warm.broken is None


@pytest.mark.parametrize("ended", ["stopped", "killed"])
def test_a_boot_leaves_no_files_outside_its_own_folders(spec: EngineSpec, ended: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with boot(replace(spec, environ={**os.environ, "TMPDIR": folder})) as engine:
            assert any(Path(folder).iterdir()), "vLLM keeps its sockets in the temporary folder"
            if ended == "killed":
                for pid in engine.pids():
                    os.kill(pid, signal.SIGKILL)
        assert [file.name for file in Path(folder).iterdir() if not file.is_dir()] == []


def test_ten_warm_boots_in_a_row_leave_nothing(spec: EngineSpec, warm: WarmServer) -> None:
    for _ in range(10):
        with boot(spec, warm=warm) as engine:
            assert engine.report.kind == "warm", engine.report.notes
        assert engine.stop().survivors == ()
    shared = [name for name in os.listdir("/dev/shm") if name.startswith("psm_")]
    assert [name for name in shared if _made_by_us(Path("/dev/shm") / name, spec)] == []


def _made_by_us(path: Path, spec: EngineSpec) -> bool:
    """Younger than this test's folder, and used by nobody."""
    used = {file for stat in procfs.all_stats() for file in procfs.shared_memory_files(stat.pid)}
    return path.stat().st_ctime > spec.log_path.parent.stat().st_ctime and str(path) not in used
