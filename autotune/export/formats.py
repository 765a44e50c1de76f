"""Every format by its name. A format's module is imported when it is rendered."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from autotune.errors import UsageError
from autotune.export.options import DEFAULT_OPTIONS, ExportOptions
from autotune.store.recommendation import Recommendation


@dataclass(frozen=True, slots=True)
class Format:
    """One launcher's file. ``module`` lies in ``autotune.export`` and has ``render(recommendation, options)``."""

    module: str
    file_name: str
    help: str
    executable: bool = False
    container: bool = False

    def render(self, recommendation: Recommendation, options: ExportOptions = DEFAULT_OPTIONS) -> str:
        """The file's text. Raises ``UsageError`` where the recommendation cannot be written in this format."""
        if recommendation.verdict == "not-measured":
            raise UsageError(
                f"study {recommendation.provenance.study} could not measure vLLM's defaults, so there is nothing to "
                "export. Give the same `autotune run` again."
            )
        if not recommendation.recommends:
            raise UsageError(
                f"study {recommendation.provenance.study} found no configuration that works, so there is nothing to "
                "export. See `autotune explain` for the logs in its folder."
            )
        if options.image is not None and not self.container:
            raise UsageError(f"--image {options.image} has no meaning in {self.file_name}, which runs no container.")
        module = importlib.import_module(f"autotune.export.{self.module}")
        return cast(str, module.render(recommendation, options))


FORMATS: Mapping[str, Format] = {
    "vllm": Format("vllm", "vllm.yaml", "YAML for vllm serve MODEL --config FILE"),
    "shell": Format("shell", "launch.sh", "shell script", executable=True),
    "systemd": Format("systemd", "vllm.service", "hardened unit with health check and warm-up"),
    "docker": Format("docker", "docker-run.sh", "shell script around docker run", executable=True, container=True),
    "compose": Format("compose", "compose.yaml", "Compose file", container=True),
    "kubernetes": Format("kubernetes", "kubernetes.yaml", "Deployment and Service", container=True),
    "kserve": Format("kserve", "inferenceservice.yaml", "KServe InferenceService", container=True),
    "llm-d": Format("llm_d", "llm-d-values.yaml", "values for the chart llm-d-modelservice", container=True),
    "helm": Format("helm", "helm-values.yaml", "values for vLLM's production-stack chart", container=True),
    "ray-serve": Format("ray_serve", "ray-serve.yaml", "Ray Serve config with engine arguments"),
    "env": Format("env_file", "vllm.env", "environment file"),
    "json": Format("json_file", "recommendation.json", "the recommendation as data"),
}


def find_format(name: str) -> Format:
    """The format of that name. Raises ``UsageError`` that lists them."""
    if name not in FORMATS:
        raise UsageError(f"--format {name!r} is unknown. Use one of: {', '.join(FORMATS)}.")
    return FORMATS[name]
