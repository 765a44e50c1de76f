"""``autotune serve``: start vLLM in place of this process with the best configuration that is known here.

Nothing is asked and nothing is measured. An exact match was proven on this device, model and vLLM; a near one is
used all the same and called so. Flags that the vLLM here would refuse are left out and named, since a near match
may come from another version. What the person gives behind ``--`` comes last and wins.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.engine.environment import MAIN
from autotune.engine.flags import FlagTable, load_flags
from autotune.engine.install import VllmInstall, resolve_install
from autotune.errors import UsageError
from autotune.export.registry import Match, Wanted, entries, lookup, registry_folder
from autotune.export.serving import public_launch
from autotune.host.detect import read_host
from autotune.host.select import select_device
from autotune.host.types import Device
from autotune.space.config import LaunchConfig

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeRequest:
    """What the person asked for; ``extra`` are further arguments for vLLM."""

    model: str
    gpu: str = "auto"
    workload: str | None = None
    objective: str | None = None
    vllm_python: Path | None = None
    extra: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Launch:
    """A process to start: ``environ`` is the whole environment; ``remarks`` are lines for the person."""

    argv: tuple[str, ...]
    environ: Mapping[str, str]
    remarks: tuple[str, ...]


def plan_launch(request: ServeRequest, folder: Path | None = None) -> Launch:
    """The best known way to serve the model here.

    Raises ``UsageError`` where the registry has none for this model on this device, or no vLLM is found.
    """
    host = read_host()
    device = select_device(host, request.gpu)
    install = resolve_install(request.vllm_python)
    model, revision = model_identity(request.model)
    wanted = Wanted(
        device=device.name,
        cpu=device.kind == "cpu",
        model=model,
        model_revision=revision,
        vllm_version=install.version,
        host_fingerprint=host.fingerprint(),
        workload=request.workload,
        objective=request.objective,
    )
    folder = folder or registry_folder()
    match = lookup(wanted, entries(folder))
    if match is None:
        raise UsageError(
            f"no tuned configuration for {request.model} on {device.name} in {folder}. "
            f"Find one with: autotune run {request.model}"
        )
    return _launch(replace(request, model=model), device, install, match)


def start(launch: Launch) -> None:
    """Become vLLM; does not return."""
    os.execve(launch.argv[0], list(launch.argv), dict(launch.environ))


def model_identity(model: str) -> tuple[str, str]:
    """The model as it is served, and its revision as ``autotune run`` states it for a folder."""
    folder = Path(model).expanduser()
    if not folder.is_dir():
        return model, "unknown"
    try:
        digest = hashlib.sha256((folder / "config.json").read_bytes()).hexdigest()[:16]
    except OSError as error:
        raise UsageError(f"{folder} holds no readable config.json, so it is no model.") from error
    return str(folder.resolve()), f"sha256:{digest}"


def accepted(launch: LaunchConfig, table: FlagTable) -> tuple[LaunchConfig, list[str]]:
    """The launch config less what this vLLM would refuse, and why each was left out."""
    refused = {name: why for name, value in launch.flags if (why := table.why_not(name, value))}
    return launch.without(*refused), list(refused.values())


def _launch(request: ServeRequest, device: Device, install: VllmInstall, match: Match) -> Launch:
    launch, secrets = public_launch(match.recommendation)
    launch, refused = accepted(launch, load_flags(install))
    address = () if _has(request.extra, "--host") else ("--host", HOST)
    return Launch(
        argv=(*_command(install), "serve", request.model, *launch.argv(), *address, *request.extra),
        environ={**os.environ, **_device_variable(device, launch), **dict(launch.env)},
        remarks=tuple(_remarks(match, launch, refused, secrets)),
    )


def _remarks(match: Match, launch: LaunchConfig, refused: list[str], secrets: Iterable[str]) -> list[str]:
    r = match.recommendation
    kind = "Exact match" if match.exact else f"Nearest match (score {match.score:.2f}), not measured for this:"
    found = f"study {r.provenance.study} of {r.provenance.measured_at}, {r.gain_text()}"
    missing = [name for name in secrets if name not in os.environ]
    return [
        f"{kind}{':' if match.exact else ''} {found}. File {match.path}",
        *(f"  differs in {difference}" for difference in match.differences),
        *(f"  left out: {why}" for why in refused),
        *([f"  not set, though the study had it: {', '.join(missing)}"] if missing else []),
        f"Starting vLLM with: {launch}",
    ]


def _command(install: VllmInstall) -> list[str]:
    script = install.python.parent / "vllm"
    return [str(script)] if os.access(script, os.X_OK) else [str(install.python), "-c", MAIN]


def _device_variable(device: Device, launch: LaunchConfig) -> dict[str, str]:
    """The GPU that was chosen, where one is enough and the caller has not chosen already."""
    alone = all((launch.get(f"{kind}-parallel-size") or 1) == 1 for kind in ("tensor", "pipeline", "data"))
    if device.gpu is None or not alone or "CUDA_VISIBLE_DEVICES" in os.environ:
        return {}
    return {"CUDA_VISIBLE_DEVICES": device.gpu.uuid}


def _has(words: Sequence[str], flag: str) -> bool:
    return any(word == flag or word.startswith(f"{flag}=") for word in words)
