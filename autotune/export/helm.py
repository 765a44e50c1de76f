"""Values for the chart of vLLM's production stack (``vllm/vllm-stack``).

The chart writes ``vllm serve MODEL --host --port`` itself. It passes ``--no-enable-prefix-caching`` unless told
otherwise and mounts /dev/shm only where a tensor-parallel size is given, so both are always stated; everything
else travels in ``extraArgs``.
"""

from typing import Any

from autotune.export.image import container_image, image_lines
from autotune.export.options import DEFAULT_OPTIONS, ExportOptions
from autotune.export.pod import environment, model_lines, model_mounts, model_volumes, secret_lines, startup_probe
from autotune.export.provenance import comment_lines
from autotune.export.serving import PORT, Serving, serving
from autotune.export.yaml_text import yaml_text
from autotune.store.recommendation import Recommendation

_BY_CHART = ("enable-prefix-caching", "tensor-parallel-size")
_CPUS = 4
_MEMORY = "16Gi"


def render(recommendation: Recommendation, options: ExportOptions = DEFAULT_OPTIONS) -> str:
    """The file's text. Raises ``UsageError`` where no image is known."""
    image = container_image(recommendation, options)
    s = serving(recommendation)
    usage = [
        "Use: helm install NAME vllm/vllm-stack -f FILE",
        f"requestCPU {_CPUS} and requestMemory {_MEMORY} were not measured: the chart demands a value.",
        *image_lines(recommendation, options),
        *model_lines(s),
        *secret_lines(s),
    ]
    engine: dict[str, Any] = {
        "enableEngine": True,
        "containerPort": PORT,
        "startupProbe": {"initialDelaySeconds": 5, **startup_probe(s, PORT)},
        "modelSpec": [_model(s, image)],
    }
    if not s.gpus:
        engine["runtimeClassName"] = ""
    return yaml_text(comment_lines(recommendation, usage=usage), {"servingEngineSpec": engine})


def _model(s: Serving, image: str) -> dict[str, Any]:
    repository, tag = image.rsplit(":", 1)
    model: dict[str, Any] = {
        "name": s.name,
        "repository": repository,
        "tag": tag,
        "modelURL": s.container_model,
        "replicaCount": 1,
        "requestCPU": _CPUS,
        "requestMemory": _MEMORY,
        "requestGPU": s.gpus,
        "shmSize": f"{s.shm_gib}Gi",
        "vllmConfig": {
            "enablePrefixCaching": s.launch.get("enable-prefix-caching") is not False,
            "tensorParallelSize": s.launch.get("tensor-parallel-size") or 1,
            "extraArgs": ["--served-model-name", s.served_name, *s.launch.without(*_BY_CHART).argv()],
        },
        "env": environment(s),
    }
    if s.folder:
        model |= {"extraVolumes": model_volumes(s), "extraVolumeMounts": model_mounts(s)}
    return model
