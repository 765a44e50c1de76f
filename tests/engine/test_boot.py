"""Boots of the stand-in, plain and warm: ready means proven, every failure has its reason, nothing is left behind."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_vllm import make_fake_python, set_behaviour

from autotune.engine import probe
from autotune.engine.boot import BootHooks, boot
from autotune.engine.deadlines import Deadlines
from autotune.engine.engine import Engine
from autotune.engine.install import resolve_install
from autotune.engine.process import find_marked
from autotune.engine.types import BootFailed, EngineSpec
from autotune.engine.warm import WarmServer
from autotune.errors import EnvironmentFault, Interrupted
from autotune.space.config import LaunchConfig

RUN = f"test-boot-{os.getpid()}"
QUICK = Deadlines(idle_s=1.0, quiet_s=0.5, floor_s=1.0, unknown_s=60.0)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A vLLM that does as it is told."""
    return make_fake_python(tmp_path_factory.mktemp("fake") / "venv")


@pytest.fixture
def spec(python: Path, tmp_path: Path) -> Iterator[EngineSpec]:
    """An engine that may be booted; whatever the test leaves of it is an error."""
    set_behaviour(python, {})
    yield EngineSpec(
        install=resolve_install(python),
        model="tiny",
        config=LaunchConfig.of({"max-num-seqs": 8}),
        fixed=LaunchConfig.of({"max-model-len": 512}),
        run_id=RUN,
        log_path=tmp_path / "logs" / "engine.log",
        cache_root=tmp_path / "cache",
        environ={name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"},
    )
    left = find_marked(RUN)
    for stat in left:
        os.kill(stat.pid, signal.SIGKILL)
    assert left == []


@pytest.fixture(params=["plain", "warm"])
def warm(request: pytest.FixtureRequest, spec: EngineSpec, tmp_path: Path) -> Iterator[WarmServer | None]:
    """No warm server, or one."""
    if request.param == "plain":
        yield None
        return
    with WarmServer(spec, tmp_path / "warm.log") as server:
        yield server


def failing(spec: EngineSpec, **options: Any) -> BootFailed:
    """Boot, and return how it failed."""
    with pytest.raises(BootFailed) as caught:
        boot(spec, **options).stop()
    assert find_marked(RUN) == [] or options.get("warm")
    return caught.value


def test_a_ready_engine_serves_under_its_own_name(spec: EngineSpec, warm: WarmServer | None) -> None:
    phases: list[str] = []
    with boot(spec, warm=warm, hooks=BootHooks(on_phase=lambda name, _: phases.append(name))) as engine:
        report = engine.report
        assert report.kind == ("warm" if warm else "plain"), report.notes
        assert report.kv_tokens and report.attention_backend == "FLASH_ATTN"
        assert phases[0] == "imports" and {"server", "ready"} <= set(phases)
        assert sum(report.phases_s.values()) == pytest.approx(report.boot_s, abs=0.3)
        assert engine.alive() and engine.failure() is None and engine.watchdog() is None
        assert engine.metrics().generation_tokens == 2
        assert engine.model_name.endswith(engine.engine_id)
        assert engine.reset_prefix_cache()
        assert engine.resolved_config()["scheduler_config"]["max_num_seqs"] == 8
        assert len(engine.pids()) >= 2
    assert not engine.alive() and engine.failure() is None
    assert engine.stop().survivors == ()


def test_two_boots_in_a_row_keep_their_logs_apart(spec: EngineSpec) -> None:
    first, second = boot(spec), boot(spec)
    with first, second:
        assert first.port != second.port and first.model_name != second.model_name
        assert first.model_name in (spec.log_path.parent / "engine.earlier1.log").read_text()
        assert second.model_name in spec.log_path.read_text()


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("invalid_flag", "imports"),
        ("kv_cache_too_small", "profile"),
        ("oom_weights", "weights"),
        ("unknown", "profile"),
    ],
)
def test_a_failure_is_told_with_its_class(spec: EngineSpec, python: Path, name: str, phase: str) -> None:
    set_behaviour(python, {"fail": name})
    error = failing(spec)
    assert error.failure.cls.name == name
    assert str(error.failure.phase) == phase
    assert error.stop.survivors == ()


def test_a_failure_of_the_configuration_is_believed_of_a_warm_boot(
    spec: EngineSpec, python: Path, tmp_path: Path
) -> None:
    set_behaviour(python, {"fail": "oom_weights"})
    with WarmServer(spec, tmp_path / "warm.log") as warm:
        assert failing(spec, warm=warm).failure.cls.name == "oom_weights"
        assert warm.broken is None
        set_behaviour(python, {})
        with boot(spec, warm=warm) as engine:
            assert engine.report.kind == "warm"


def test_a_doubtful_failure_of_a_warm_boot_is_repeated_plainly(spec: EngineSpec, python: Path, tmp_path: Path) -> None:
    set_behaviour(python, {"fail": "unknown", "times": 1})
    with WarmServer(spec, tmp_path / "warm.log") as warm:
        with boot(spec, warm=warm) as engine:
            assert engine.report.kind == "plain"
        with boot(spec, warm=warm) as engine:
            assert engine.report.kind == "plain"
            assert "a warm boot failed where a plain one did not" in engine.report.notes[0]


def test_several_api_servers_boot_plainly_and_cost_no_trust(spec: EngineSpec, tmp_path: Path) -> None:
    two = replace(spec, config=LaunchConfig.of({"data-parallel-size": 2}))
    with WarmServer(spec, tmp_path / "warm.log") as warm:
        with boot(two, warm=warm) as engine:
            assert engine.report.kind == "plain"
            assert "--data-parallel-size 2 starts several API servers" in engine.report.notes[0]
        with boot(spec, warm=warm) as engine:
            assert engine.report.kind == "warm"


@pytest.mark.parametrize("name", ["exited", "exited.nonzero", "killed"])
def test_any_exit_that_nobody_asked_for_is_a_failure(spec: EngineSpec, python: Path, name: str) -> None:
    set_behaviour(python, {"fail": name})
    assert failing(spec).failure.cls.name == name.partition(".")[0]


@pytest.mark.parametrize("phase", ["imports", "weights", "server"])
def test_a_hang_ends_in_bounded_time(spec: EngineSpec, python: Path, phase: str) -> None:
    set_behaviour(python, {"hang": phase})
    began = time.monotonic()
    error = failing(spec, deadlines=QUICK)
    assert error.failure.cls.name == "boot_hang"
    assert time.monotonic() - began < 15
    assert "no CPU use" in (error.failure.line or "")


def test_a_stop_request_ends_a_boot_at_once(spec: EngineSpec, python: Path, warm: WarmServer | None) -> None:
    set_behaviour(python, {"hang": "weights"})
    asked = threading.Event()
    threading.Timer(1.5, asked.set).start()
    began = time.monotonic()
    with pytest.raises(Interrupted):
        boot(spec, warm=warm, hooks=BootHooks(stop_requested=asked.is_set))
    assert 1.4 < time.monotonic() - began < 5


def test_the_gate_is_asked_before_anything_starts(spec: EngineSpec) -> None:
    def gate() -> None:
        raise EnvironmentFault("full")

    with pytest.raises(EnvironmentFault):
        boot(spec, hooks=BootHooks(gate=gate))
    assert not spec.log_path.exists()


def test_another_models_server_is_never_taken_for_ours(spec: EngineSpec, python: Path) -> None:
    set_behaviour(python, {"served_as": "somebody-elses"})
    error = failing(spec)
    assert error.failure.cls.name == "request_errors" and not error.failure.teaches
    assert "somebody-elses" in (error.failure.line or "")


def test_a_server_that_cannot_complete_is_not_ready(spec: EngineSpec, python: Path) -> None:
    set_behaviour(python, {"http_503": 1.0})
    error = failing(spec)
    assert error.failure.cls.name == "request_errors" and not error.failure.teaches


FOREIGN = """
import http.server, sys
class Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"data": [{"id": "tiny"}]}')
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Healthy).serve_forever()
"""


def test_a_stranger_on_the_port_is_neither_measured_nor_killed(
    spec: EngineSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as finder:
        finder.bind(("127.0.0.1", 0))
        taken = finder.getsockname()[1]
    stranger = subprocess.Popen([sys.executable, "-c", FOREIGN, str(taken)], stderr=subprocess.DEVNULL)
    try:
        while probe.listener(taken, lambda: [stranger.pid]) != "ours":
            time.sleep(0.05)
        free = probe.free_port
        ports = iter([taken])
        monkeypatch.setattr("autotune.engine.probe.free_port", lambda: next(ports, 0) or free())
        with boot(spec) as engine:
            assert engine.port != taken
        monkeypatch.setattr("autotune.engine.probe.free_port", lambda: taken)
        assert failing(spec).failure.cls.name == "port_in_use"
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_where_listeners_are_not_told_the_name_is_the_proof(spec: EngineSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.engine.procfs.listening_inodes", lambda port: None)
    with boot(spec) as engine:
        assert engine.metrics().generation_tokens == 2


def test_a_poisoned_cache_is_moved_aside_once(spec: EngineSpec, python: Path) -> None:
    spec.cache_root.mkdir()
    (spec.cache_root / "torch_compile_cache").mkdir()
    set_behaviour(python, {"fail": "cache_poisoned", "times": 1})
    with boot(spec) as engine:
        assert engine.alive()
    aside = spec.cache_root.with_name("cache.poisoned1")
    assert (aside / "torch_compile_cache").is_dir()
    spec.cache_root.mkdir(exist_ok=True)
    set_behaviour(python, {"fail": "cache_poisoned"})
    assert failing(spec).failure.cls.name == "cache_poisoned"
    assert [path.name for path in spec.cache_root.parent.glob("cache.poisoned*")] == ["cache.poisoned1"]


def test_an_orphan_of_a_killed_server_is_ended(spec: EngineSpec, warm: WarmServer | None) -> None:
    engine = boot(spec, warm=warm)
    os.kill(engine.pid, signal.SIGKILL)
    until_dead(engine)
    assert engine.pids() != (), "the stand-in's engine process is meant to outlive its server"
    failure = engine.failure()
    assert failure is not None and failure.cls.name == "killed"
    assert engine.watchdog() == failure
    report = engine.stop()
    assert (report.exit_code, report.survivors, engine.pids()) == (-signal.SIGKILL, (), ())


def test_the_port_is_free_once_the_api_server_is_dead(spec: EngineSpec, warm: WarmServer | None) -> None:
    with boot(spec, warm=warm) as engine:
        os.kill(engine.pid, signal.SIGKILL)
        until_dead(engine)
        assert probe.listener(engine.port, engine.pids) == "nobody"


def until_dead(engine: Engine) -> None:
    """Wait for the API server's end."""
    deadline = time.monotonic() + 10
    while engine.alive():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_dead_engine_behind_exit_code_zero_is_a_failure(spec: EngineSpec, python: Path) -> None:
    set_behaviour(python, {"fail": "engine_died", "fail_after_tokens": 8})
    with boot(spec) as engine:
        body = {"model": engine.model_name, "prompt": [1, 2, 3], "max_tokens": 64, "ignore_eos": True}
        answer = probe.ask(engine.port, "/v1/completions", body=body, limit_s=10)
        assert answer.status != 200
        until_dead(engine)
        failure = engine.watchdog()
        assert failure is not None and failure.cls.name == "engine_died"
        assert engine.stop().exit_code == 0


def test_a_hang_under_load_is_seen_on_the_counters(
    spec: EngineSpec, python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune.engine.engine.STALL_S", 0.5)
    set_behaviour(python, {"hang_after_tokens": 8})
    with boot(spec) as engine:
        body = {"model": engine.model_name, "prompt": [1, 2, 3], "max_tokens": 64, "ignore_eos": True}
        with pytest.raises(probe.ProbeError, match="no answer within"):
            probe.ask(engine.port, "/v1/completions", body=body, limit_s=0.6, keep_waiting=lambda: None)
        client = threading.Thread(target=lambda: swallow(engine.port, body), daemon=True)
        client.start()
        deadline = time.monotonic() + 10
        while (failure := engine.watchdog()) is None:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert failure.cls.name == "run_hang"
    client.join(10)


def swallow(port: int, body: dict[str, Any]) -> None:
    """A request that will get no answer."""
    try:
        probe.ask(port, "/v1/completions", body=body, limit_s=8)
    except probe.ProbeError:
        return


def test_a_warm_boot_needs_the_servers_environment(spec: EngineSpec, tmp_path: Path) -> None:
    other = replace(spec, config=LaunchConfig.of({}, {"VLLM_ATTENTION_BACKEND": "FLASHINFER"}))
    with WarmServer(spec, tmp_path / "warm.log") as warm, boot(other, warm=warm) as engine:
        assert engine.report.kind == "plain"
        assert "VLLM_ATTENTION_BACKEND" in engine.report.notes[0]


def test_a_warm_server_forks_only_its_own_vllm(spec: EngineSpec, python: Path, tmp_path: Path) -> None:
    other = replace(spec, command=(str(python.parent / "vllm"), "serve"))
    with WarmServer(spec, tmp_path / "warm.log") as warm, boot(other, warm=warm) as engine:
        assert engine.report.kind == "plain"
        assert "another program" in engine.report.notes[0]


def test_a_warm_server_that_cannot_import_falls_back(spec: EngineSpec, tmp_path: Path) -> None:
    broken = replace(spec, environ={**os.environ, "PYTHONHOME": "/nonexistent"})
    with WarmServer(broken, tmp_path / "warm.log") as warm, boot(spec, warm=warm) as engine:
        assert engine.report.kind == "plain"
        assert engine.report.notes


def test_closing_a_warm_server_ends_its_engines(spec: EngineSpec, tmp_path: Path) -> None:
    warm = WarmServer(spec, tmp_path / "warm.log")
    engine = boot(spec, warm=warm)
    warm.close()
    until_dead(engine)
    assert engine.stop().survivors == ()


def test_a_killed_warm_server_costs_no_engine(spec: EngineSpec, tmp_path: Path) -> None:
    with WarmServer(spec, tmp_path / "warm.log") as warm, boot(spec, warm=warm) as engine:
        os.kill(warm.pid, signal.SIGKILL)
        time.sleep(0.3)
        assert engine.alive() and engine.metrics().generation_tokens == 2
        assert engine.stop().survivors == ()
        with boot(spec, warm=warm) as second:
            assert second.report.kind == "plain"
