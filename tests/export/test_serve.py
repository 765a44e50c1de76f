"""``autotune serve`` against the stand-in for vLLM, started for real."""

import hashlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from fake_vllm import make_fake_python
from fake_vllm.running import free_port
from recommendations import CPU, SECRET

from autotune.export.registry import register
from autotune.host.detect import read_host
from autotune.host.select import select_device
from autotune.space.config import LaunchConfig
from autotune.store.recommendation import Recommendation

CALL = "import sys; from autotune.cli.main import main; main()"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fake_python(tmp_path_factory.mktemp("fake"))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "models/tiny"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"architectures": ["Qwen3ForCausalLM"], "max_position_embeddings": 4096}')
    return folder


@pytest.fixture
def environ(tmp_path: Path, python: Path) -> dict[str, str]:
    return {
        **os.environ,
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "AUTOTUNE_VLLM_PYTHON": str(python),
        "AUTOTUNE_GPU": "cpu",
    }


def tuned_here(model: Path, **changes: str) -> Recommendation:
    host = read_host()
    provenance = replace(
        CPU.provenance,
        device=select_device(host, "cpu").name,
        host_fingerprint=host.fingerprint(),
        model=str(model),
        model_revision="sha256:" + hashlib.sha256((model / "config.json").read_bytes()).hexdigest()[:16],
        **changes,
    )
    return replace(CPU, config=LaunchConfig.of({"max-num-seqs": 16}), fixed=LaunchConfig(), provenance=provenance)


def keep(environ: dict[str, str], recommendation: Recommendation) -> Path:
    path = register(recommendation, Path(environ["XDG_DATA_HOME"]) / "vllm-autotune/configs")
    assert path is not None
    return path


def serve(environ: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", CALL, "serve", *words]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)


def test_an_exact_match_is_called_exact(environ: dict[str, str], model: Path, python: Path) -> None:
    path = keep(environ, tuned_here(model))
    done = serve(environ, str(model), "--dry-run", "--", "--max-model-len", "512")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [
        f"{python.parent}/vllm", "serve", str(model), "--max-num-seqs", "16", "--host", "127.0.0.1",
        "--max-model-len", "512",
    ]  # fmt: skip
    assert done.stderr.startswith("Exact match: study s") and str(path) in done.stderr


def test_a_near_match_is_not_called_exact(environ: dict[str, str], model: Path) -> None:
    keep(environ, tuned_here(model, vllm_version="0.24.0"))
    done = serve(environ, str(model), "--dry-run", "--workload", "rag")
    assert done.returncode == 0
    assert done.stderr.startswith("Nearest match (score 0.40), not measured for this: study s")
    assert "differs in vLLM: tuned on 0.24.0, here 0.32.0" in done.stderr
    assert "differs in workload: tuned for chat, here rag" in done.stderr


def test_flags_that_this_vllm_would_refuse_are_left_out_and_named(environ: dict[str, str], model: Path) -> None:
    old = tuned_here(model, vllm_version="0.24.0")
    keep(environ, replace(old, config=LaunchConfig.of({"max-num-seqs": 16, "flag-of-the-past": 3})))
    done = serve(environ, str(model), "--dry-run")
    assert "flag-of-the-past" not in done.stdout and "--max-num-seqs 16" in done.stdout
    assert "left out: vLLM 0.32.0 has no --flag-of-the-past" in done.stderr


def test_without_an_entry_it_says_how_to_get_one(environ: dict[str, str], model: Path) -> None:
    done = serve(environ, str(model), "--dry-run")
    assert done.returncode == 2 and not done.stdout
    assert f"no tuned configuration for {model}" in done.stderr
    assert f"autotune run {model}" in done.stderr and len(done.stderr.splitlines()) <= 2


def test_a_folder_without_a_model_is_refused(environ: dict[str, str], tmp_path: Path) -> None:
    done = serve(environ, str(tmp_path))
    assert done.returncode == 2 and "config.json" in done.stderr


def test_the_host_is_the_persons_where_they_give_one(environ: dict[str, str], model: Path) -> None:
    keep(environ, tuned_here(model))
    words = serve(environ, str(model), "--dry-run", "--", "--host=0.0.0.0").stdout.split()
    assert "127.0.0.1" not in words and words[-1] == "--host=0.0.0.0"


def test_a_secret_of_the_study_is_asked_back(environ: dict[str, str], model: Path) -> None:
    recommendation = tuned_here(model)
    path = keep(environ, recommendation)
    entry = json.loads(path.read_text())
    entry["config"]["env"] = [["MY_TOKEN", SECRET]]
    path.write_text(json.dumps(entry))
    done = serve(environ, str(model), "--dry-run")
    assert SECRET not in done.stdout + done.stderr and "MY_TOKEN" in done.stderr


@pytest.fixture
def served(environ: dict[str, str], model: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    keep(environ, replace(tuned_here(model), fixed=LaunchConfig.of({}, {"VLLM_LOGGING_LEVEL": "INFO"})))
    port = free_port()
    command = [sys.executable, "-c", CALL, "serve", str(model), "--", "--port", str(port)]
    process = subprocess.Popen(
        command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    yield process, port
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_it_becomes_vllm_and_serves(served: tuple[subprocess.Popen[bytes], int], model: Path) -> None:
    process, port = served
    end = time.monotonic() + 40
    while time.monotonic() < end and process.poll() is None:
        with suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/v1/models")
            answer = connection.getresponse()
            assert answer.status == 200 and str(model) in answer.read().decode()
            break
        time.sleep(0.1)
    else:
        pytest.fail("vLLM did not come up")
    command = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
    assert b"--max-num-seqs" in command and any(re.search(rb"vllm", word) for word in command[:2])
