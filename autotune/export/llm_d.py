"""Values for llm-d's chart ``llm-d-modelservice``: one decode pod, no prefill pods, no routing sidecar.

The chart itself adds ``vllm serve MODEL``, the port, the served name and the parallel sizes, so these are left
out of the arguments. Its hub models are written ``hf://ID``; a folder must lie on a volume claim.
"""

from typing import Any

from autotune.export.image import container_image, image_lines
from autotune.export.options import DEFAULT_OPTIONS, ExportOptions
from autotune.export.pod import environment, probes, resources, secret_lines, security
from autotune.export.provenance import comment_lines
from autotune.export.serving import PORT, Serving, serving
from autotune.export.yaml_text import yaml_text
from autotune.store.recommendation import Recommendation

CLAIM = "vllm-models"
_BY_CHART = ("tensor-parallel-size", "data-parallel-size")


def render(recommendation: Recommendation, options: ExportOptions = DEFAULT_OPTIONS) -> str:
    """The file's text. Raises ``UsageError`` where no image is known."""
    image = container_image(recommendation, options)
    s = serving(recommendation)
    usage = [
        "Use: helm install NAME llm-d-modelservice/llm-d-modelservice -f FILE",
        *image_lines(recommendation, options),
        *_model_lines(s),
        *secret_lines(s),
    ]
    values = {
        "modelArtifacts": _artifacts(s),
        "accelerator": {"type": "nvidia" if s.gpus else "cpu"},
        "routing": {"servicePort": PORT, "proxy": {"enabled": False}},
        "decode": _decode(s, image),
        "prefill": {"create": False},
    }
    return yaml_text(comment_lines(recommendation, usage=usage), values)


def _artifacts(s: Serving) -> dict[str, Any]:
    return {
        "name": s.served_name,
        "uri": f"pvc://{CLAIM}/{s.folder.name}" if s.folder else f"hf://{s.model}",
        # The limit of the volume that takes the download, not a request for space; the chart's own is 5 MiB.
        "size": "1Ti",
        "labels": {"llm-d.ai/inferenceServing": "true", "llm-d.ai/model": s.name},
    }


def _decode(s: Serving, image: str) -> dict[str, Any]:
    container = {
        "name": "vllm",
        "image": image,
        "modelCommand": "vllmServe",
        "args": s.launch.without(*_BY_CHART).argv(),
        "env": environment(s),
        "ports": [{"name": "metrics", "containerPort": PORT, "protocol": "TCP"}],
        "resources": resources(s),
        "mountModelVolume": True,
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
        "extraConfig": {"securityContext": security(s), **probes(s, "metrics")},
    }
    return {
        "create": True,
        "replicas": 1,
        "parallelism": {
            "tensor": s.launch.get("tensor-parallel-size") or 1,
            "data": s.launch.get("data-parallel-size") or 1,
        },
        "containers": [container],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{s.shm_gib}Gi"}}],
    }


def _model_lines(s: Serving) -> list[str]:
    if s.folder is None:
        return []
    return [f"Copy {s.folder} onto a volume claim named {CLAIM}, as {s.folder.name}."]
