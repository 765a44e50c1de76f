"""A Deployment and a Service for ``kubectl apply -f FILE``."""

from typing import Any

from autotune.export.image import container_image, image_lines
from autotune.export.options import DEFAULT_OPTIONS, ExportOptions
from autotune.export.pod import annotations, labels, model_lines, pin_lines, pod_spec, secret_lines, selector
from autotune.export.provenance import comment_lines
from autotune.export.serving import PORT, Serving, serving
from autotune.export.yaml_text import yaml_text
from autotune.store.recommendation import Recommendation


def render(recommendation: Recommendation, options: ExportOptions = DEFAULT_OPTIONS) -> str:
    """The file's text. Raises ``UsageError`` where no image is known."""
    image = container_image(recommendation, options)
    s = serving(recommendation)
    usage = [
        *image_lines(recommendation, options),
        *model_lines(s),
        *secret_lines(s),
        *pin_lines(recommendation, s),
    ]
    metadata = {"name": s.name, "labels": labels(s), "annotations": annotations(recommendation)}
    return yaml_text(comment_lines(recommendation, usage=usage), _deployment(s, image, metadata), _service(s))


def _deployment(s: Serving, image: str, metadata: dict[str, Any]) -> dict[str, Any]:
    template = {"metadata": {"labels": labels(s)}, "spec": pod_spec(s, image)}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {
            "replicas": 1,
            # A new pod would wait for ever for the GPU that the old one holds.
            "strategy": {"type": "Recreate"},
            "progressDeadlineSeconds": s.startup_s + 600,
            "selector": {"matchLabels": selector(s)},
            "template": template,
        },
    }


def _service(s: Serving) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": s.name, "labels": labels(s)},
        "spec": {
            "type": "ClusterIP",
            "selector": selector(s),
            "ports": [{"name": "http", "port": PORT, "targetPort": "http", "protocol": "TCP"}],
        },
    }
