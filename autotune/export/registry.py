"""Every tuned configuration of this user, one JSON file each, and which of them fits a machine best.

The folder is ``$XDG_DATA_HOME/vllm-autotune/configs`` (``~/.local/share/...`` without the variable). An entry is
known by device, model, workload, objective and vLLM version; tuning the same again replaces it.

A lookup never crosses the model or the device: on another GPU the weights may not even fit. What may differ costs
score, from 1 for the same down to 0:

    vLLM version   0.35 another minor version, 0.15 another patch of the same
    workload       0.25 another one, where one was asked for
    model          0.2  the same name from another place or with other files
    objective      0.15 another one, where one was asked for
    host           0.1  another machine with the same device (driver, CPU, memory)

Among equals the newest wins. Whatever differs is named: a near match is a guess, not a measurement.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from autotune.export.files import write_atomic
from autotune.export.serving import on_cpu, without_secrets
from autotune.store.recommendation import Provenance, Recommendation

_MINOR, _PATCH, _WORKLOAD, _MODEL, _OBJECTIVE, _HOST = 0.35, 0.15, 0.25, 0.2, 0.15, 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a configuration is looked for. ``workload`` and ``objective`` None mean any.

    ``device`` is the GPU's name as its driver gives it, or the CPU's model with ``cpu`` set; a configuration for
    another CPU model counts as one for another host. ``model_revision`` is "unknown" where it is not known.
    """

    device: str
    cpu: bool
    model: str
    model_revision: str
    vllm_version: str
    host_fingerprint: str
    workload: str | None = None
    objective: str | None = None


@dataclass(frozen=True, slots=True)
class Match:
    """An entry that fits; ``differences`` says in words what is not the same, and is empty for an exact match."""

    recommendation: Recommendation
    path: Path
    score: float
    differences: tuple[str, ...]

    @property
    def exact(self) -> bool:
        """Whether it was measured for exactly what is wanted."""
        return not self.differences


def registry_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Where the entries lie; the folder need not exist."""
    values = os.environ if environ is None else environ
    base = values.get("XDG_DATA_HOME")
    home = Path(values["HOME"]) if "HOME" in values else Path.home()
    return (Path(base) if base else home / ".local/share") / "vllm-autotune/configs"


def register(recommendation: Recommendation, folder: Path | None = None) -> Path | None:
    """Keep a recommendation for ``autotune serve``; None where it recommends nothing.

    Secrets are left out. Raises ``UsageError`` where the folder cannot be written.
    """
    if not recommendation.recommends:
        return None
    path = (folder or registry_folder()) / _file_name(recommendation.provenance)
    write_atomic(path, json.dumps(without_secrets(recommendation).to_json(), indent=2, ensure_ascii=False) + "\n")
    return path


def entries(folder: Path | None = None) -> list[tuple[Path, Recommendation]]:
    """Every entry that can be read; one that another version of autotune wrote is left out."""
    found = []
    for path in sorted((folder or registry_folder()).glob("*.json")):
        try:
            found.append((path, Recommendation.from_json(json.loads(path.read_text(encoding="utf-8")))))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
    return found


def lookup(wanted: Wanted, found: Iterable[tuple[Path, Recommendation]]) -> Match | None:
    """The best entry for ``wanted``, exact or nearest; None where no entry has the model and the device."""
    matches = [match for path, recommendation in found if (match := _match(wanted, path, recommendation))]
    return max(matches, key=lambda m: (m.score, m.recommendation.provenance.measured_at), default=None)


def _match(wanted: Wanted, path: Path, recommendation: Recommendation) -> Match | None:
    p = recommendation.provenance
    same_device = on_cpu(recommendation) if wanted.cpu else p.device == wanted.device
    if not same_device or _base_name(p.model) != _base_name(wanted.model):
        return None
    costs = dict(cost for cost in _costs(wanted, p) if cost is not None)
    return Match(recommendation, path, round(max(0.0, 1 - sum(costs.values())), 3), tuple(costs))


def _costs(wanted: Wanted, p: Provenance) -> list[tuple[str, float] | None]:
    return [
        _version_cost(wanted.vllm_version, p.vllm_version),
        _plain_cost("workload", p.workload, wanted.workload, _WORKLOAD),
        _plain_cost("objective", p.objective, wanted.objective, _OBJECTIVE),
        _model_cost(wanted, p),
        _plain_cost("host", f"{p.device}, {p.host_fingerprint}", f"{wanted.device}, {wanted.host_fingerprint}", _HOST),
    ]


def _plain_cost(what: str, theirs: str, wanted: str | None, cost: float) -> tuple[str, float] | None:
    if wanted is None or wanted == theirs or wanted in re.split(", | under | at |/", theirs):
        return None
    return f"{what}: tuned for {theirs}, here {wanted}", cost


def _version_cost(here: str, theirs: str) -> tuple[str, float] | None:
    if here == theirs:
        return None
    return f"vLLM: tuned on {theirs}, here {here}", _PATCH if _minor(here) == _minor(theirs) else _MINOR


def _model_cost(wanted: Wanted, p: Provenance) -> tuple[str, float] | None:
    known = "unknown" not in (p.model_revision, wanted.model_revision)
    if known and p.model_revision != wanted.model_revision:
        return f"model: tuned on revision {p.model_revision}, here {wanted.model_revision}", _MODEL
    # The same files in another folder are the same model.
    if not known and p.model != wanted.model:
        return f"model: tuned on {p.model}, here {wanted.model}", _MODEL
    return None


def _minor(text: str) -> tuple[int, ...]:
    try:
        return Version(text).release[:2]
    except InvalidVersion:
        return ()


def _base_name(model: str) -> str:
    return model.rstrip("/").rsplit("/", 1)[-1].lower()


def _file_name(p: Provenance) -> str:
    """Readable, and unique by a digest of the whole key."""
    key = (p.device, p.model, p.workload, p.objective, p.vllm_version)
    readable = re.sub(r"[^a-z0-9.]+", "-", f"{p.device} {_base_name(p.model)} vllm {p.vllm_version}".lower())[:100]
    return f"{readable.strip('-')}-{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:10]}.json"
