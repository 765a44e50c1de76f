"""A Compose file: one service, published on the loopback address."""

from typing import Any

from autotune.export.image import container_image, image_lines
from autotune.export.options import DEFAULT_OPTIONS, ExportOptions
from autotune.export.provenance import comment_lines, facts
from autotune.export.serving import CACHE_MOUNT, PORT, Serving, serving
from autotune.export.yaml_text import yaml_text
from autotune.store.recommendation import Recommendation

# Every vLLM image has a Python; not every one has curl.
HEALTH = f"import urllib.request as u; u.urlopen('http://127.0.0.1:{PORT}/health', timeout=5)"


def render(recommendation: Recommendation, options: ExportOptions = DEFAULT_OPTIONS) -> str:
    """The file's text. Raises ``UsageError`` where no image is known."""
    image = container_image(recommendation, options)
    s = serving(recommendation)
    usage = [
        "Use: docker compose -f FILE up -d. PORT=9000 in front of it changes the port on this host.",
        f"Taken from your environment or a file .env, if set: {', '.join(s.secrets)}.",
        *image_lines(recommendation, options),
    ]
    project = {
        "services": {"vllm": _service(s, image, facts(recommendation))},
        "volumes": {"cache": {}},
    }
    return yaml_text(comment_lines(recommendation, usage=usage), project)


def _service(s: Serving, image: str, origin: dict[str, str]) -> dict[str, Any]:
    service: dict[str, Any] = {
        "container_name": s.name,
        "image": image,
        "entrypoint": ["vllm", "serve"],
        "command": [_literal(word) for word in s.container_arguments()],
        # A name without a value is taken from the caller's environment, and stays unset where that has none.
        "environment": [*(_literal(f"{name}={value}") for name, value in s.launch.env), *s.secrets],
        "labels": {f"vllm-autotune.{key}": _literal(value) for key, value in origin.items()},
        "ports": [f"127.0.0.1:${{PORT:-{PORT}}}:{PORT}"],
        "volumes": [f"cache:{CACHE_MOUNT}", *_model_mount(s)],
        "shm_size": f"{s.shm_gib}gb",
        "init": True,
        "restart": "unless-stopped",
        "stop_grace_period": "60s",
        "healthcheck": {
            "test": ["CMD", "python3", "-c", HEALTH],
            "interval": "15s",
            "timeout": "10s",
            "retries": 4,
            "start_period": f"{s.startup_s}s",
        },
        "security_opt": ["no-new-privileges:true"],
        "cap_drop": ["ALL"],
    }
    return service | (_gpus(s) if s.gpus else {"cap_add": ["SYS_NICE"]})


def _gpus(s: Serving) -> dict[str, Any]:
    device = {"driver": "nvidia", "count": s.gpus, "capabilities": ["gpu"]}
    return {"deploy": {"resources": {"reservations": {"devices": [device]}}}}


def _model_mount(s: Serving) -> list[dict[str, Any]]:
    if s.folder is None:
        return []
    source = _literal(str(s.folder))
    return [{"type": "bind", "source": source, "target": _literal(s.container_model), "read_only": True}]


def _literal(text: str) -> str:
    """Text that Compose must not expand."""
    return text.replace("$", "$$")
