"""A Ray Serve config for ``serve deploy FILE``: Ray's LLM application with vLLM's engine arguments.

Flags become ``engine_kwargs``: underscores for dashes, JSON text as mappings, a switched-off flag as false. Ray
takes vLLM from its own image or environment, so the version that was measured stands in the head.
"""

import json
from typing import Any

from autotune.export.options import DEFAULT_OPTIONS, ExportOptions
from autotune.export.provenance import comment_lines
from autotune.export.serving import PORT, Serving, serving
from autotune.export.yaml_text import yaml_text
from autotune.space.config import FlagValue
from autotune.store.recommendation import Recommendation

# Names by which Ray schedules onto a GPU model; any other GPU is taken without one.
_ACCELERATORS = (
    "GB300", "GB200", "B300", "B200", "H200", "H100", "H20", "A100", "A10G", "L40S", "L4", "T4", "V100",
)  # fmt: skip


def render(recommendation: Recommendation, options: ExportOptions = DEFAULT_OPTIONS) -> str:
    """The file's text."""
    del options  # the cluster decides what vLLM it has
    s = serving(recommendation)
    # Ray's own front door does not ask for vLLM's key.
    secrets = [name for name in s.secrets if name != "VLLM_API_KEY"]
    usage = [
        "Use: serve deploy FILE. Needs ray[serve,llm].",
        f"Every node of the cluster must have vLLM {recommendation.provenance.vllm_version}, which was measured.",
        *([f"Set in the cluster's environment, if needed: {', '.join(secrets)}."] if secrets else []),
        "In a RayService this text is its serveConfigV2; set the host to 0.0.0.0 there.",
    ]
    config = {
        "proxy_location": "EveryNode",
        "http_options": {"host": "127.0.0.1", "port": PORT},
        "applications": [
            {
                "name": s.name,
                "route_prefix": "/",
                "import_path": "ray.serve.llm:build_openai_app",
                "args": {"llm_configs": [_llm_config(s, recommendation.provenance.device)]},
            }
        ],
    }
    return yaml_text(comment_lines(recommendation, usage=usage), config)


def _llm_config(s: Serving, device: str) -> dict[str, Any]:
    config: dict[str, Any] = {
        "model_loading_config": {"model_id": s.served_name, "model_source": s.model},
        "engine_kwargs": {name.replace("-", "_"): _argument(value) for name, value in s.launch.flags},
        "deployment_config": {"num_replicas": 1},
        "runtime_env": {"env_vars": dict(s.launch.env)},
    }
    if not s.gpus:
        return config | {"accelerator_config": {"kind": "cpu"}}
    words = device.upper().replace("-", " ").split()
    name = next((a for a in _ACCELERATORS if a in words), None)
    return config | ({"accelerator_type": name} if name else {"accelerator_config": {"kind": "gpu"}})


def _argument(value: FlagValue) -> Any:
    if isinstance(value, str) and value.startswith(("{", "[")):
        return json.loads(value)
    return value
