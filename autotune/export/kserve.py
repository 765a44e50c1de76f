"""A KServe InferenceService with vLLM's own container, in the mode that uses plain Deployments.

KServe knows the serving container by the name ``kserve-container``; its keys beside those of a pod are
``minReplicas``, ``maxReplicas`` and ``deploymentStrategy``.
"""

from autotune.export.image import container_image, image_lines
from autotune.export.options import DEFAULT_OPTIONS, ExportOptions
from autotune.export.pod import annotations, labels, model_lines, pin_lines, pod_spec, secret_lines
from autotune.export.provenance import comment_lines
from autotune.export.serving import serving
from autotune.export.yaml_text import yaml_text
from autotune.store.recommendation import Recommendation

CONTAINER_NAME = "kserve-container"


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
    # Serverless mode needs a gateway for every request and allows no volume of the node; both names of the
    # plain mode are understood, this one by older versions as well.
    mode = {"serving.kserve.io/deploymentMode": "RawDeployment"}
    service = {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {
            "name": s.name,
            "labels": labels(s),
            "annotations": {**mode, **annotations(recommendation)},
        },
        "spec": {
            "predictor": {
                "minReplicas": 1,
                "maxReplicas": 1,
                "deploymentStrategy": {"type": "Recreate"},
                **pod_spec(s, image, CONTAINER_NAME),
            }
        },
    }
    return yaml_text(comment_lines(recommendation, usage=usage), service)
