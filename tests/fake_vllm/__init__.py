"""Makes a virtual environment whose vLLM is the stand-in of ``site/``: quick to boot, and it misbehaves on demand.

    python = make_fake_python(tmp_path, {"fail": "oom_graph"})
    subprocess.Popen([python.parent / "vllm", "serve", "/models/tiny", "--port", "8000"])

See README.md beside this file for the knobs.
"""

import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SITE = Path(__file__).parent / "site"
STAND_INS = {"torch": "2.13.0+cpu"}


def make_fake_python(folder: Path, behaviour: Mapping[str, Any] | None = None, version: str = "0.32.0") -> Path:
    """Build the environment in ``folder`` and return its Python; ``behaviour`` as in ``set_behaviour``."""
    base = Path(os.path.realpath(sys.executable))
    packages = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    shutil.copytree(SITE, packages, ignore=shutil.ignore_patterns("__pycache__"))
    _claim_version(packages, version)
    (folder / "bin").mkdir()
    (folder / "pyvenv.cfg").write_text(f"home = {base.parent}\ninclude-system-site-packages = false\n")
    python = folder / "bin" / "python"
    for name in ("python", "python3", f"python{sys.version_info.major}.{sys.version_info.minor}"):
        (folder / "bin" / name).symlink_to(base)
    script = folder / "bin" / "vllm"
    script.write_text(
        f"#!{python}\nfrom vllm.entrypoints.cli.main import main\n\nif __name__ == '__main__':\n    main()\n"
    )
    script.chmod(0o755)
    set_behaviour(python, behaviour or {})
    return python


def set_behaviour(python: Path, behaviour: Mapping[str, Any]) -> None:
    """Tell all later boots of this environment how to behave; running servers keep their behaviour."""
    file = python.parent.parent / "behaviour.json"
    draft = file.with_suffix(".draft")
    draft.write_text(json.dumps(dict(behaviour)))
    draft.replace(file)


def _claim_version(packages: Path, version: str) -> None:
    numbers = tuple(int(part) for part in version.split("+")[0].split(".")[:3])
    (packages / "vllm" / "_version.py").write_text(
        f'__version__ = version = "{version}"\n__version_tuple__ = version_tuple = {numbers}\n'
    )
    for name, claimed in {"vllm": version, **STAND_INS}.items():
        info = packages / f"{name}-{claimed}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {claimed}\n")
        (info / "RECORD").write_text(f"{name}/__init__.py,,\n")
