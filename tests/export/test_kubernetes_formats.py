"""The formats that end in Kubernetes, against the API's own schemas; charts and CRDs against their known keys."""

from collections.abc import Iterator
from typing import Any

import kubernetes_validate
import pytest
import yaml
from recommendations import CPU, FOLDER, HUB, SAMPLES, SECRETS

from autotune.export.formats import FORMATS
from autotune.export.serving import serving
from autotune.store.recommendation import Recommendation

VERSIONS = ("1.28", "1.32", "1.37")
EACH = pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
# Keys of a KServe predictor that are not those of a pod (serving.kserve.io/v1beta1).
KSERVE_KEYS = {"minReplicas", "maxReplicas", "deploymentStrategy"}
# Keys of a container in llm-d's chart that are not Kubernetes' own.
LLM_D_KEYS = {"modelCommand", "mountModelVolume", "extraConfig"}
# What the production stack's chart knows of a model, of those that we write, with the types of its schema.
HELM_MODEL: dict[str, type | tuple[type, ...]] = {
    "name": str, "repository": str, "tag": str, "modelURL": str, "replicaCount": int, "requestCPU": int,
    "requestMemory": str, "requestGPU": int, "shmSize": str, "vllmConfig": dict, "env": list, "extraVolumes": list,
    "extraVolumeMounts": list,
}  # fmt: skip
HELM_VLLM: dict[str, type] = {"enablePrefixCaching": bool, "tensorParallelSize": int, "extraArgs": list}


def render(name: str, sample: Recommendation) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(FORMATS[name].render(sample)))


def validate(document: dict[str, Any]) -> None:
    for version in VERSIONS:
        kubernetes_validate.validate(document, version, strict=True)


def as_pod(spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec}


def arguments(container: dict[str, Any]) -> list[str]:
    return [word.replace("$$(", "$(") for word in container["args"]]


def secret_names(environment: list[dict[str, Any]]) -> Iterator[str]:
    for entry in environment:
        if "valueFrom" in entry:
            assert entry["valueFrom"]["secretKeyRef"]["key"] == entry["name"]
            yield entry["name"]


@EACH
def test_kubernetes_accepts_deployment_and_service(sample: Recommendation) -> None:
    deployment, service = render("kubernetes", sample)
    validate(deployment)
    validate(service)
    pod = deployment["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    assert container["command"] == ["vllm", "serve"]
    assert arguments(container) == serving(sample).container_arguments()
    chosen = deployment["spec"]["selector"]["matchLabels"]
    assert chosen.items() <= pod["metadata"]["labels"].items()
    assert service["spec"]["selector"] == chosen
    assert service["spec"]["ports"][0]["targetPort"] == container["ports"][0]["name"]


def test_the_schemas_are_strict_enough_to_find_a_wrong_key() -> None:
    deployment, _ = render("kubernetes", HUB)
    deployment["spec"]["template"]["spec"]["containers"][0]["startupProbes"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        validate(deployment)


@EACH
def test_the_startup_probe_waits_as_long_as_a_start_may_take(sample: Recommendation) -> None:
    (container,) = render("kubernetes", sample)[0]["spec"]["template"]["spec"]["containers"]
    probe = container["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= serving(sample).startup_s
    assert container["readinessProbe"]["httpGet"] == container["livenessProbe"]["httpGet"] == probe["httpGet"]


def test_gpu_shared_memory_and_model_folder() -> None:
    spec = render("kubernetes", FOLDER)[0]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    assert container["resources"] == {"limits": {"nvidia.com/gpu": "1"}}
    assert volumes["shm"]["emptyDir"]["medium"] == "Memory" and mounts["shm"]["mountPath"] == "/dev/shm"
    assert volumes["model"]["hostPath"]["path"] == FOLDER.provenance.model
    assert mounts["model"] == {"name": "model", "mountPath": container["args"][0], "readOnly": True}
    assert render("kubernetes", HUB)[0]["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] == {
        "nvidia.com/gpu": "2"
    }
    assert render("kubernetes", CPU)[0]["spec"]["template"]["spec"]["containers"][0]["resources"] == {}


def test_nothing_is_expanded_by_kubernetes() -> None:
    (container,) = render("kubernetes", HUB)[0]["spec"]["template"]["spec"]["containers"]
    (variable,) = (entry for entry in container["env"] if entry["name"] == "VLLM_X")
    assert variable["value"] == "50% of $HOME or $$(HOME)"


@pytest.mark.parametrize("name", ["kubernetes", "kserve", "llm-d", "helm"])
def test_secrets_are_references(name: str) -> None:
    document = render(name, SECRETS)[0]
    holder = {
        "kubernetes": lambda d: d["spec"]["template"]["spec"]["containers"][0],
        "kserve": lambda d: d["spec"]["predictor"]["containers"][0],
        "llm-d": lambda d: d["decode"]["containers"][0],
        "helm": lambda d: d["servingEngineSpec"]["modelSpec"][0],
    }[name](document)
    assert list(secret_names(holder["env"])) == ["VLLM_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY"]


@EACH
def test_kserve_gets_a_pod_and_its_own_keys(sample: Recommendation) -> None:
    (service,) = render("kserve", sample)
    assert (service["apiVersion"], service["kind"]) == ("serving.kserve.io/v1beta1", "InferenceService")
    predictor = service["spec"]["predictor"]
    pod = {key: value for key, value in predictor.items() if key not in KSERVE_KEYS}
    validate(as_pod(pod))
    (container,) = pod["containers"]
    assert container["name"] == "kserve-container"
    assert arguments(container) == serving(sample).container_arguments()
    assert service["metadata"]["annotations"]["serving.kserve.io/deploymentMode"] == "RawDeployment"


@EACH
def test_llm_d_gets_a_container_and_what_the_chart_adds_is_left_out(sample: Recommendation) -> None:
    (values,) = render("llm-d", sample)
    (container,) = values["decode"]["containers"]
    plain = {key: value for key, value in container.items() if key not in LLM_D_KEYS} | container["extraConfig"]
    validate(as_pod({"containers": [plain], "volumes": values["decode"]["volumes"]}))
    launch = serving(sample).launch
    by_chart = {"tensor-parallel-size", "data-parallel-size"}
    assert container["args"] == launch.without(*by_chart).argv()
    assert values["decode"]["parallelism"]["tensor"] == (launch.get("tensor-parallel-size") or 1)
    assert values["prefill"] == {"create": False} and values["routing"]["proxy"] == {"enabled": False}


def test_llm_d_models_are_written_as_the_chart_wants_them() -> None:
    assert render("llm-d", HUB)[0]["modelArtifacts"]["uri"] == "hf://Qwen/Qwen3-14B"
    assert render("llm-d", CPU)[0]["modelArtifacts"]["uri"] == "pvc://vllm-models/tiny"
    assert render("llm-d", CPU)[0]["accelerator"] == {"type": "cpu"}


@EACH
def test_helm_values_have_the_keys_and_types_of_the_chart(sample: Recommendation) -> None:
    (values,) = render("helm", sample)
    engine = values["servingEngineSpec"]
    (model,) = engine["modelSpec"]
    assert model.keys() <= HELM_MODEL.keys() and all(isinstance(model[k], HELM_MODEL[k]) for k in model)
    vllm = model["vllmConfig"]
    assert vllm.keys() == HELM_VLLM.keys() and all(isinstance(vllm[k], HELM_VLLM[k]) for k in vllm)
    assert all(isinstance(word, str) for word in vllm["extraArgs"])
    container = {
        "name": "vllm",
        "image": f"{model['repository']}:{model['tag']}",
        "env": model["env"],
        "startupProbe": engine["startupProbe"],
        "volumeMounts": model.get("extraVolumeMounts", []),
    }
    validate(as_pod({"containers": [container], "volumes": model.get("extraVolumes", [])}))


def test_helm_states_what_the_chart_would_decide_otherwise() -> None:
    def vllm_config(sample: Recommendation) -> dict[str, Any]:
        config: dict[str, Any] = render("helm", sample)[0]["servingEngineSpec"]["modelSpec"][0]["vllmConfig"]
        return config

    assert vllm_config(FOLDER)["enablePrefixCaching"] is False
    assert vllm_config(HUB)["enablePrefixCaching"] is True  # vLLM's default, which the chart would switch off
    assert vllm_config(HUB)["tensorParallelSize"] == 2
    assert not {"--tensor-parallel-size", "--no-enable-prefix-caching"} & set(vllm_config(HUB)["extraArgs"])
    assert render("helm", CPU)[0]["servingEngineSpec"]["runtimeClassName"] == ""
