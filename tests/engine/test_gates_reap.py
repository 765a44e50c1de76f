"""Waiting for memory, telling other tenants, and ending what killed tuners left: with real processes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_vllm import make_fake_python
from typer.testing import CliRunner

from autotune.cli.main import app
from autotune.engine import procfs
from autotune.engine.gates import MemoryGate, Strangers, find_tenants, ram_gate, refuse_tenants
from autotune.engine.process import ENGINE_MARK, RUN_MARK, SERVER_MARK, TUNER_MARK, tuner_lives, tuner_mark
from autotune.engine.reap import find_leftovers, reap
from autotune.errors import EnvironmentFault, Interrupted
from autotune.host.nvml import Nvml
from autotune.host.types import Gpu, GpuProcess

RUN = f"test-reap-{os.getpid()}"
GIB = 1024**3
SLEEP = "import time; time.sleep(600)"
Spawn = Callable[..., "subprocess.Popen[bytes]"]


def dead_tuner() -> str:
    """The mark of a tuner that has ended."""
    code = "from autotune.engine.process import tuner_mark; print(tuner_mark())"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Start a process that sleeps, with the marks given; it is ended after the test."""
    started: list[subprocess.Popen[bytes]] = []

    def go(*, run: str = RUN, engine: str = "e1", tuner: str | None = None, argv: Any = None) -> Any:
        marks = {RUN_MARK: run, ENGINE_MARK: engine, TUNER_MARK: tuner} if tuner else {}
        process = subprocess.Popen(
            argv or [sys.executable, "-c", SLEEP], env={**os.environ, **marks}, start_new_session=True
        )
        started.append(process)
        return process

    yield go
    for process in started:
        process.kill()
        process.wait()


def gate(**changes: Any) -> MemoryGate:
    """A gate of a device that has all its memory."""
    values: dict[str, Any] = {
        "device": "GPU 0",
        "run_id": RUN,
        "baseline_bytes": 80 * GIB,
        "tolerance_bytes": 64 * 1024**2,
        "free_bytes": lambda: 80 * GIB,
        "holders": list,
        "limit_s": 0.5,
    }
    return MemoryGate(**{**values, **changes})


def test_the_gate_opens_at_once_on_a_free_device() -> None:
    began = time.monotonic()
    gate()()
    gate(free_bytes=lambda: 80 * GIB - 63 * 1024**2)()
    gate(free_bytes=lambda: None)()
    assert time.monotonic() - began < 1


def test_the_gate_waits_for_memory_that_comes_back_late() -> None:
    back_at = time.monotonic() + 0.7
    gate(free_bytes=lambda: 80 * GIB if time.monotonic() > back_at else 10 * GIB, limit_s=5)()
    assert time.monotonic() >= back_at


def test_the_gate_names_who_keeps_the_memory_and_leaves_him_alone(spawn: Spawn) -> None:
    stranger = spawn()
    shut = gate(free_bytes=lambda: 10 * GIB, holders=lambda: [7, stranger.pid], known_holders=frozenset({7}))
    with pytest.raises(
        EnvironmentFault, match=f"10.00 GiB free, 80.00 GiB at the start. Using it now: pid {stranger.pid}"
    ):
        shut()
    assert stranger.poll() is None


def test_the_gate_heeds_a_stop() -> None:
    with pytest.raises(Interrupted):
        gate(free_bytes=lambda: 0, stop_requested=lambda: True, limit_s=60)()


def test_the_gate_ends_engines_of_its_run_and_only_those(spawn: Spawn) -> None:
    dead, living = dead_tuner(), os.getppid()
    stat = procfs.read_stat(living)
    assert stat is not None
    other_tuner = tuner_mark().replace(f"{os.getpid()}:", f"{living}:", 1).split(":")
    other_tuner[1] = str(stat.id.started_ticks)
    ours, orphan = spawn(tuner=tuner_mark()), spawn(tuner=dead)
    kept = [
        spawn(),
        spawn(tuner=":".join(other_tuner)),
        spawn(run="other", tuner=dead),
        spawn(engine=SERVER_MARK, tuner=tuner_mark()),
    ]
    gate(limit_s=5)()
    assert (ours.wait(1), orphan.wait(1)) == (-signal.SIGTERM, -signal.SIGTERM)
    assert [process.poll() for process in kept] == [None] * 4


def test_the_ram_gate_of_this_machine_opens() -> None:
    opened = replace(ram_gate(RUN), limit_s=10)
    opened()
    free_bytes = opened.free_bytes()
    assert free_bytes is not None and free_bytes >= opened.baseline_bytes - opened.tolerance_bytes


def test_a_gpu_tenant_blocks_and_is_named() -> None:
    gpu = Gpu(0, "GPU-x", "H200", 141 * GIB, 100 * GIB, processes=(GpuProcess(4711, "python", 30 * GIB),))
    tenants = find_tenants(gpu=gpu, usable_cores=10_000, sample_s=0.1)
    with pytest.raises(EnvironmentFault, match="GPU 0 is also used by python \\(pid 4711\\)"):
        refuse_tenants(tenants)
    desktop = replace(gpu, processes=(GpuProcess(9, "Xorg", GIB, "graphics"),))
    refuse_tenants(find_tenants(gpu=desktop, usable_cores=10_000, sample_s=0.1))


class Users(Nvml):
    """NVML that lists, one look after the other, these processes."""

    def __init__(self, *looks: set[int]) -> None:
        self._looks = list(looks)

    def compute_pids(self, uuid: str) -> frozenset[int]:
        """The next look; the last one stays."""
        return frozenset(self._looks.pop(0) if len(self._looks) > 1 else self._looks[0])


def test_a_gpu_is_looked_at_anew_since_ended_processes_are_listed_a_little_longer() -> None:
    gpu = Gpu(0, "GPU-x", "H200", 141 * GIB, 100 * GIB, processes=(GpuProcess(4711, "python", 30 * GIB),))
    quick = {"usable_cores": 10_000.0, "sample_s": 0.05}
    refuse_tenants(find_tenants(gpu=gpu, nvml=Users({4711}, {4711}, set()), **quick))
    stays = find_tenants(gpu=gpu, nvml=Users({4711}, {4711, 12}), patience_s=0.3, **quick)
    assert stays[0].pids == (12, 4711) and "python (pid 4711)" in stays[0].text


def test_a_foreign_vllm_is_told_and_ours_is_not(spawn: Spawn, tmp_path: Path) -> None:
    python = make_fake_python(tmp_path / "venv")
    words = [str(python.parent / "vllm"), "serve", "tiny", "--port", "0"]
    foreign, ours = spawn(argv=words), spawn(argv=words, tuner=tuner_mark())
    time.sleep(0.3)
    found = {
        pid
        for tenant in find_tenants(usable_cores=10_000, sample_s=0.1)
        if tenant.kind == "vllm"
        for pid in tenant.pids
    }
    assert foreign.pid in found and ours.pid not in found
    assert foreign.poll() is None
    for process in (foreign, ours):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def test_busy_cores_are_told_with_the_busiest_process(spawn: Spawn) -> None:
    burner = spawn(argv=[sys.executable, "-c", "while True: pass"])
    time.sleep(0.2)
    busy = [tenant for tenant in find_tenants(usable_cores=0.5, sample_s=1.0) if tenant.kind == "cpu"]
    assert busy and not busy[0].blocks
    assert "0.5" not in busy[0].text and "cores busy" in busy[0].text
    refuse_tenants(busy)
    assert burner.poll() is None


def test_a_neighbour_of_a_visit_is_seen_and_our_own_load_clients_are_not(spawn: Spawn) -> None:
    burn = "while True: pass  # autotune.load.worker"
    client = spawn(argv=[sys.executable, "-c", burn])
    strangers = Strangers(usable_cores=0.4)
    assert strangers.tenant() is None, "too early to say"
    time.sleep(0.7)
    found = strangers.tenant()
    assert found is None or client.pid not in found.pids
    spawn(argv=[sys.executable, "-c", "while True: pass"])
    time.sleep(1.0)
    found = strangers.tenant()
    assert found is not None and not found.blocks and client.pid not in found.pids


def test_a_tuner_is_judged_by_start_time_namespace_and_boot() -> None:
    mark = tuner_mark()
    pid, ticks, namespace, boot = mark.split(":")
    assert tuner_lives(mark)
    assert not tuner_lives(f"{pid}:{int(ticks) + 1}:{namespace}:{boot}")
    assert tuner_lives(f"{pid}:{int(ticks) + 1}:1:{boot}"), "another container's pids mean nothing here"
    assert tuner_lives("nonsense") and tuner_lives(f"{pid}:{ticks}")


def test_leftovers_are_those_of_dead_tuners(spawn: Spawn) -> None:
    dead = dead_tuner()
    orphans = [spawn(tuner=dead), spawn(tuner=dead, engine="e2")]
    living, unmarked = spawn(tuner=tuner_mark()), spawn()
    found = find_leftovers(RUN)
    assert {leftover.process.pid for leftover in found} == {process.pid for process in orphans}
    assert found[0].tuner_pid == int(dead.split(":")[0])
    report = reap([leftover for leftover in found if leftover.engine_id == "e1"], grace_s=1)
    assert report.survivors == () and orphans[0].wait(1) == -signal.SIGTERM
    assert orphans[1].poll() is living.poll() is unmarked.poll() is None


TUNER = """
import json, os, sys, time
from pathlib import Path
from autotune.engine.boot import boot
from autotune.engine.install import resolve_install
from autotune.engine.types import EngineSpec
from autotune.engine.warm import WarmServer
from autotune.space.config import LaunchConfig
folder, python, run, kind = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4]
spec = EngineSpec(install=resolve_install(python), model="tiny", config=LaunchConfig(), run_id=run,
                  log_path=folder / "engine.log", cache_root=folder / "cache")
engine = boot(spec, warm=WarmServer(spec, folder / "warm.log") if kind == "warm" else None)
print(json.dumps([engine.report.kind, engine.pids()]), flush=True)
time.sleep(600)
"""


def start_tuner(tmp_path: Path, kind: str) -> tuple["subprocess.Popen[str]", list[int]]:
    """A tuner with one engine of the stand-in running."""
    python = make_fake_python(tmp_path / "venv")
    argv = [sys.executable, "-c", TUNER, str(tmp_path), str(python), RUN, kind]
    tuner = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert tuner.stdout is not None
    booted, pids = json.loads(tuner.stdout.readline())
    assert booted == kind
    return tuner, pids


def gone(pids: list[int], limit_s: float = 5.0) -> bool:
    """Whether all of them end within the time."""
    deadline = time.monotonic() + limit_s
    while any((stat := procfs.read_stat(pid)) and stat.running for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_reap_ends_a_killed_tuners_engine_after_a_dry_run_that_does_not(tmp_path: Path) -> None:
    tuner, pids = start_tuner(tmp_path, "plain")
    reaper = CliRunner()
    assert str(pids[0]) not in reaper.invoke(app, ["reap", "--dry-run"]).output, "its tuner lives"
    tuner.kill()
    tuner.wait()
    listed = reaper.invoke(app, ["reap", "--dry-run"])
    assert listed.exit_code == 0 and all(f"pid {pid} " in listed.output for pid in pids)
    assert all(procfs.read_stat(pid) for pid in pids)
    report = reap(find_leftovers(RUN), grace_s=1)
    assert report.survivors == () and gone(pids)
    assert find_leftovers(RUN) == ()


def test_a_warm_servers_engines_end_with_the_tuner(tmp_path: Path) -> None:
    tuner, pids = start_tuner(tmp_path, "warm")
    tuner.kill()
    tuner.wait()
    assert gone(pids)
    time.sleep(0.2)
    assert find_leftovers(RUN) == ()
