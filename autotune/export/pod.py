"""The pieces of a Kubernetes pod that serves a model, shared by every format that ends in one.

A start may last until ``Serving.startup_s``; only then does the liveness probe take over, so that a slow boot
is not killed. Secrets are optional references to one Secret named ``NAME-secrets``.
"""

from typing import Any

from autotune.export.provenance import facts
from autotune.export.serving import CACHE_MOUNT, PORT, Serving
from autotune.store.recommendation import Recommendation

_SHORT_PERIOD_S = 5
_LONG_PERIOD_S = 10
_LONG_STARTUP_S = 600
STOP_S = 60


def labels(serving: Serving) -> dict[str, str]:
    """Labels for every object."""
    return {**selector(serving), "app.kubernetes.io/managed-by": "vllm-autotune"}


def selector(serving: Serving) -> dict[str, str]:
    """Labels by which the pods are found."""
    return {"app.kubernetes.io/name": "vllm", "app.kubernetes.io/instance": serving.name}


def annotations(recommendation: Recommendation) -> dict[str, str]:
    """The provenance, so that it is still there once the file's comments are gone."""
    return {f"vllm-autotune/{key}": value for key, value in facts(recommendation).items()}


def pod_spec(serving: Serving, image: str, container_name: str = "vllm") -> dict[str, Any]:
    """A whole pod specification with one container."""
    return {
        # Variables of a Service whose name starts with vllm would be read as settings of vLLM.
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": STOP_S,
        "containers": [container(serving, image, container_name)],
        "volumes": volumes(serving),
    }


def container(serving: Serving, image: str, name: str) -> dict[str, Any]:
    """The container that runs vLLM."""
    return {
        "name": name,
        "image": image,
        "command": ["vllm", "serve"],
        "args": [literal(word) for word in serving.container_arguments()],
        "env": environment(serving),
        "ports": [{"name": "http", "containerPort": PORT, "protocol": "TCP"}],
        **probes(serving),
        "resources": resources(serving),
        "securityContext": security(serving),
        "volumeMounts": volume_mounts(serving),
    }


def environment(serving: Serving) -> list[dict[str, Any]]:
    """Variables of the launch config, then secrets by reference."""
    plain = [{"name": name, "value": literal(value)} for name, value in serving.launch.env]
    return plain + [_secret(serving, name) for name in serving.secrets]


def probes(serving: Serving, port: int | str = "http") -> dict[str, Any]:
    """Startup, readiness and liveness, all on ``/health``."""
    get = {"path": "/health", "port": port}
    return {
        "startupProbe": startup_probe(serving, port),
        "readinessProbe": {"httpGet": get, "periodSeconds": 5, "timeoutSeconds": 5, "failureThreshold": 3},
        # A full batch may delay an answer: a minute of silence is a hang, a few seconds are not.
        "livenessProbe": {"httpGet": get, "periodSeconds": 10, "timeoutSeconds": 10, "failureThreshold": 6},
    }


def startup_probe(serving: Serving, port: int | str) -> dict[str, Any]:
    """Asks until ``startup_s`` have passed."""
    period_s = _SHORT_PERIOD_S if serving.startup_s <= _LONG_STARTUP_S else _LONG_PERIOD_S
    return {
        "httpGet": {"path": "/health", "port": port},
        "periodSeconds": period_s,
        "timeoutSeconds": 5,
        "failureThreshold": -(-serving.startup_s // period_s),
    }


def resources(serving: Serving) -> dict[str, Any]:
    """As many whole GPUs as the launch config uses."""
    return {"limits": {"nvidia.com/gpu": str(serving.gpus)}} if serving.gpus else {}


def security(serving: Serving) -> dict[str, Any]:
    """No privileges; on a CPU the one that binds memory to cores."""
    capabilities: dict[str, Any] = {"drop": ["ALL"]}
    if not serving.gpus:
        capabilities["add"] = ["SYS_NICE"]
    return {"allowPrivilegeEscalation": False, "capabilities": capabilities}


def volumes(serving: Serving) -> list[dict[str, Any]]:
    """Shared memory, a cache, and the model's folder of the node where the model is a folder."""
    shared = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{serving.shm_gib}Gi"}}
    return [shared, {"name": "cache", "emptyDir": {}}, *model_volumes(serving)]


def volume_mounts(serving: Serving) -> list[dict[str, Any]]:
    """Where the volumes are seen."""
    own = [{"name": "shm", "mountPath": "/dev/shm"}, {"name": "cache", "mountPath": CACHE_MOUNT}]
    return own + model_mounts(serving)


def model_volumes(serving: Serving) -> list[dict[str, Any]]:
    """The node's model folder as a volume; empty for a hub id."""
    if serving.folder is None:
        return []
    return [{"name": "model", "hostPath": {"path": str(serving.folder), "type": "Directory"}}]


def model_mounts(serving: Serving) -> list[dict[str, Any]]:
    """The mount of ``model_volumes``."""
    if serving.folder is None:
        return []
    return [{"name": "model", "mountPath": serving.container_model, "readOnly": True}]


def model_lines(serving: Serving) -> list[str]:
    """What the reader must know of the model's files."""
    if serving.folder is None:
        return ["vLLM fetches the model at its start; replace the volume 'cache' by a claim to keep it."]
    return [f"Every node that may run this needs the model in {serving.folder}, or replace the volume 'model'."]


def secret_lines(serving: Serving) -> list[str]:
    """How the secrets are given."""
    pairs = " ".join(f"--from-literal={name}=..." for name in serving.secrets)
    return [f"Secrets, if you need them: kubectl create secret generic {serving.name}-secrets {pairs}"]


def pin_lines(recommendation: Recommendation, serving: Serving) -> list[str]:
    """How pods are kept on the GPU that was measured."""
    if not serving.gpus:
        return []
    product = recommendation.provenance.device.replace(" ", "-")
    return [f"To stay on the GPU that was measured, add the nodeSelector nvidia.com/gpu.product: {product}"]


def literal(text: str) -> str:
    """Text that Kubernetes must not expand: ``$(NAME)`` would be a reference."""
    return text.replace("$(", "$$(")


def _secret(serving: Serving, name: str) -> dict[str, Any]:
    reference = {"name": f"{serving.name}-secrets", "key": name, "optional": True}
    return {"name": name, "valueFrom": {"secretKeyRef": reference}}
