"""What ``autotune detect`` tells: the machine, every vLLM on it, and what a run would choose. Starts nothing."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autotune.engine.flags import FlagTable, load_flags
from autotune.engine.install import VllmInstall, find_installs, resolve_install
from autotune.errors import AutotuneError
from autotune.host.detect import read_host
from autotune.host.select import select_device
from autotune.host.types import Device, Host
from autotune.space.choose import choose_space
from autotune.space.cut import cut_space
from autotune.space.facts import VllmFacts
from autotune.space.model import ModelFacts
from autotune.space.parameters import SearchSpace
from autotune.tuner.facts import device_facts, vllm_facts


@dataclass(frozen=True, slots=True)
class FoundVllm:
    """One vLLM with the number of flags it accepts; ``unreadable`` says why they could not be read."""

    install: VllmInstall
    flag_count: int = 0
    env_count: int = 0
    unreadable: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        install = self.install
        return {
            "python": str(install.python),
            "version": install.version,
            "distribution": install.dist_name,
            "built_for": install.built_for,
            "package_dir": str(install.package_dir),
            "found_by": install.found_by,
            "flags": self.flag_count,
            "environment_variables": self.env_count,
            "problems": [*install.problems, *([self.unreadable] if self.unreadable else [])],
        }


@dataclass(frozen=True, slots=True)
class Survey:
    """The answer. ``installs`` are best first: the first is the one that a run would use.

    ``space`` is None where none can be chosen; ``space_problem`` then says why.
    """

    host: Host
    device: Device
    installs: tuple[FoundVllm, ...]
    space: SearchSpace | None
    space_problem: str | None = None

    @property
    def mismatch(self) -> str | None:
        """Why the vLLM that would be used cannot run on the device, where it cannot."""
        return self.installs[0].install.mismatch(self.device.kind) if self.installs else None

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON: host, device, vllm, space."""
        return {
            "host": self.host.to_dict(),
            "device": {**asdict(self.device), "gpu": self.device.gpu and self.device.gpu.uuid},
            "mismatch": self.mismatch,
            "vllm": [{**found.to_json(), "used": place == 0} for place, found in enumerate(self.installs)],
            "space": self.space and _space_json(self.space),
            "space_problem": self.space_problem,
        }


def survey(gpu: str = "auto", vllm_python: Path | None = None) -> Survey:
    """Look at this machine. Raises ``UsageError`` for a ``gpu`` or a ``vllm_python`` that cannot be used."""
    host = read_host()
    device = select_device(host, gpu)
    if vllm_python is not None:
        resolve_install(vllm_python)
    tables = [_read(install) for install in find_installs(vllm_python)]
    facts = vllm_facts(tables[0][0].install, tables[0][1]) if tables and tables[0][1] else _unknown_vllm()
    space, problem = _space(device, host, facts)
    return Survey(host, device, tuple(found for found, _ in tables), space, problem)


def _read(install: VllmInstall) -> tuple[FoundVllm, FlagTable | None]:
    try:
        table = load_flags(install)
    except AutotuneError as error:
        return FoundVllm(install, unreadable=str(error)), None
    return FoundVllm(install, len(table.flags), len(table.known_env)), table


def _unknown_vllm() -> VllmFacts:
    """No vLLM to ask: nothing is dropped from the space on its account."""
    return VllmFacts("0", known=False)


def _space(device: Device, host: Host, vllm: VllmFacts) -> tuple[SearchSpace | None, str | None]:
    """The space for a model of which nothing is known yet."""
    facts = device_facts(device, host)
    try:
        file, because = choose_space(facts)
        return cut_space(file, facts, vllm, ModelFacts(), chosen_because=because), None
    except AutotuneError as error:
        return None, str(error)


def _space_json(space: SearchSpace) -> dict[str, Any]:
    return {
        "name": space.name,
        "chosen_because": space.chosen_because,
        "parameters": {
            parameter.name: {"values": list(parameter.values), "scope": parameter.scope, "why": parameter.why}
            for parameter in space.parameters
        },
        "dropped": [asdict(dropped) for dropped in space.dropped],
    }
