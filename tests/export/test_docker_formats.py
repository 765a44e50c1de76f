import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from recommendations import CPU, FOLDER, HUB, SAMPLES

from autotune.export.formats import FORMATS
from autotune.export.serving import serving
from autotune.store.recommendation import Recommendation

EACH = pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
PATH = "/usr/local/bin:/usr/bin:/bin"


def run_script(sample: Recommendation, tmp_path: Path, env: dict[str, str], *words: str) -> list[str]:
    """The words that the script gives to ``docker``."""
    script, stub = tmp_path / "run.sh", tmp_path / "docker"
    script.write_text(FORMATS["docker"].render(sample))
    stub.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    stub.chmod(0o755)
    done = subprocess.run(
        ["sh", script, *words], env={"PATH": f"{tmp_path}:{PATH}", **env}, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


@EACH
def test_compose_passes_the_published_schema(sample: Recommendation, tmp_path: Path) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text(FORMATS["compose"].render(sample))
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(file)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@EACH
def test_compose_itself_reads_back_what_was_meant(sample: Recommendation, tmp_path: Path) -> None:
    if shutil.which("docker-compose"):
        compose = ["docker-compose"]
    elif (
        shutil.which("docker") and subprocess.run(["docker", "compose", "version"], capture_output=True).returncode == 0
    ):
        compose = ["docker", "compose"]
    else:
        pytest.skip("no Compose on this machine (Debian, Ubuntu: apt-get install docker-compose)")
    (tmp_path / "compose.yaml").write_text(FORMATS["compose"].render(sample))
    done = subprocess.run([*compose, "config"], cwd=tmp_path, env={"PATH": PATH}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    service = yaml.safe_load(done.stdout)["services"]["vllm"]
    # `config` prints a dollar sign doubled, as it must be written.
    s = serving(sample)
    assert [word.replace("$$", "$") for word in service["command"]] == s.container_arguments()
    for name, value in s.launch.env:
        assert service["environment"][name].replace("$$", "$") == value
    assert all(service["environment"].get(name) is None for name in s.secrets)


def test_compose_listens_on_the_loopback_address_only() -> None:
    service = yaml.safe_load(FORMATS["compose"].render(HUB))["services"]["vllm"]
    assert service["ports"] == ["127.0.0.1:${PORT:-8000}:8000"]
    (device,) = service["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": 2, "capabilities": ["gpu"]}
    assert "deploy" not in yaml.safe_load(FORMATS["compose"].render(CPU))["services"]["vllm"]


@EACH
def test_docker_runs_exactly_the_measured_command(sample: Recommendation, tmp_path: Path) -> None:
    words = run_script(sample, tmp_path, {}, "--extra")
    s = serving(sample)
    image = next(i for i, word in enumerate(words) if word.startswith("vllm/vllm-openai"))
    assert words[image + 1 :] == ["serve", *s.container_arguments(), "--extra"]
    options = words[:image]
    assert options[options.index("--publish") + 1] == "127.0.0.1:8000:8000"
    for name, value in s.launch.env:
        assert f"{name}={value}" in options
    for secret in s.secrets:
        assert options[options.index(secret) - 1] == "--env"


def test_docker_takes_port_and_gpu_from_the_caller(tmp_path: Path) -> None:
    words = run_script(FOLDER, tmp_path, {"PORT": "9000", "GPU": "GPU-1234,GPU-5678"})
    assert "127.0.0.1:9000:8000" in words
    assert words[words.index("--gpus") + 1] == '"device=GPU-1234,GPU-5678"'
    assert '"device=0,1"' in run_script(HUB, tmp_path, {})
    assert "--gpus" not in run_script(CPU, tmp_path, {})


@EACH
def test_the_real_docker_client_accepts_the_options(sample: Recommendation, tmp_path: Path) -> None:
    if not shutil.which("docker", path=PATH):
        pytest.skip("no docker client on this machine")
    script = tmp_path / "run.sh"
    script.write_text(FORMATS["docker"].render(sample))
    nowhere = {"PATH": PATH, "HOME": str(tmp_path), "DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
    done = subprocess.run(["sh", script], env=nowhere, capture_output=True, text=True)
    # The client reads every option before it looks for the daemon.
    assert "Cannot connect to the Docker daemon" in done.stderr


def test_the_real_docker_client_would_refuse_a_wrong_option(tmp_path: Path) -> None:
    if not shutil.which("docker", path=PATH):
        pytest.skip("no docker client on this machine")
    script = tmp_path / "run.sh"
    script.write_text(FORMATS["docker"].render(HUB).replace("--shm-size", "--shm-sise"))
    done = subprocess.run(["sh", script], env={"PATH": PATH, "HOME": str(tmp_path)}, capture_output=True, text=True)
    assert "unknown flag: --shm-sise" in done.stderr
