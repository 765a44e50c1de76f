"""One study, fully decided before anything is spent: a frozen value that everything else reads."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from autotune.engine.install import VllmInstall
from autotune.host.types import Device, Host
from autotune.space.config import LaunchConfig
from autotune.space.parameters import SearchSpace
from autotune.tuner.folder import StudyFolder
from autotune.tuner.incumbents import Incumbent
from autotune.tuner.models import ModelChoice
from autotune.tuner.objective import Objective
from autotune.tuner.settings import RunSettings
from autotune.tuner.variants import VARIANT
from autotune.workload.types import Workload

LONGEST_NAME = 180


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """``concurrency`` is a closed loop's requests in flight. ``remarks`` are lines that the person should read.

    ``variants`` are other checkpoints of the model, by what vLLM is given.
    ``warm_boots`` and ``live_limits`` say whether the search may use them; the final race never does.
    """

    settings: RunSettings
    objective: Objective
    study: str
    folder: StudyFolder
    storage: str
    host: Host
    device: Device
    install: VllmInstall
    model: ModelChoice
    workload: Workload
    concurrency: int
    space: SearchSpace
    warm_boots: bool = True
    live_limits: bool = True
    variants: Mapping[str, ModelChoice] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    incumbents: tuple[Incumbent, ...] = ()

    def model_of(self, config: LaunchConfig) -> ModelChoice:
        """The checkpoint that a configuration is served from."""
        return self.variants.get(str(config.get(VARIANT)), self.model)

    def identity(self) -> dict[str, Any]:
        """What must stay the same for a study to be resumed; anything else would mix numbers that do not compare."""
        return {
            "model": self.model.serve,
            "model_revision": self.model.revision,
            **self.objective.identity(),
            "workload": self.workload.name,
            "workload_digest": _digest(asdict(self.workload)),
            "concurrency": self.concurrency,
            "device": self.device.name,
            "host": self.host.fingerprint(),
            "variants": {name: each.revision for name, each in self.variants.items()},
            "vllm": self.install.version,
            "max_quality_loss": self.settings.max_quality_loss,
            "space": self.space.name,
            "space_digest": _digest([asdict(self.space.fixed), [_parameter(p) for p in self.space.parameters]]),
        }


def study_name(model: str, objective: str, workload: str, device: str, vllm_version: str) -> str:
    """The name of a study that was given none: the same question on the same machine gets the same name."""
    parts = (model, objective, workload, device, f"vllm-{vllm_version}")
    name = "-".join(re.sub(r"[^\w.]+", "-", part).strip("-").lower() for part in parts)
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 9]}-{_digest(parts)[:8]}"


def _parameter(parameter: Any) -> list[Any]:
    return [parameter.name, list(parameter.values), parameter.scope, dict(parameter.requires)]


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]
