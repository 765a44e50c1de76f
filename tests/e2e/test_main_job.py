"""``autotune run`` on real vLLM: a poor start (two requests at once), a good region, and settings that cannot boot."""

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from autotune.engine.boot import boot
from autotune.engine.install import VllmInstall
from autotune.engine.types import EngineSpec
from autotune.space.config import LaunchConfig

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

SPACE = """
schema: 1
name: end-to-end
parameters:
  max-num-seqs: {values: [default, 4, 16, 64], scope: live, ordered: true, why: "the strongest flag"}
  kv-cache-memory-bytes: {values: [default, 128K], why: "128K holds fewer tokens than a request needs"}
  quantization: {values: [default, bitsandbytes], why: "not in this vLLM"}
fixed:
  flags: {max-num-seqs: 2, kv-cache-memory-bytes: 512M, enforce-eager: true, distributed-executor-backend: uni}
  env: {VLLM_ENABLE_V1_MULTIPROCESSING: "0", VLLM_HOST_IP: 127.0.0.1, GLOO_SOCKET_IFNAME: lo}
seeds:
  - {name: no room, flags: {max-num-seqs: 16, kv-cache-memory-bytes: 128K}, why: "cannot hold one request"}
  - {name: unknown method, flags: {max-num-seqs: 16, quantization: bitsandbytes}, why: "is refused"}
"""


def autotune(*words: str, cwd: Path, timeout_s: float = 1700) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "autotune", *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=timeout_s, check=False)


@pytest.fixture(scope="module")
def study(vllm: VllmInstall, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("study")
    (folder / "space.yaml").write_text(SPACE)
    done = autotune(
        "run", "--gpu", "cpu", "--space", "space.yaml", "--trials", "6", "--window", "2s", "--out", "out",
        "--no-ablation",
        "--vllm-python", str(vllm.python), "--seed=1",
        "--allow-unverified-precision", cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads((folder / "out/best/result.json").read_text())
    return {"folder": folder, "result": result, "stderr": done.stderr}


def value(trial: dict[str, Any]) -> float | None:
    values = [p["value"] for p in trial["points"] if p["value"] is not None]
    return sum(values) / len(values) if values else None


def test_it_finds_at_least_twice_the_poor_start(study: dict[str, Any]) -> None:
    poor = next(v for t in study["result"]["trials"] if t["role"] == "baseline" and (v := value(t)))
    best = study["result"]["recommendation"]["best"]["value"]
    assert best >= 2 * poor


def test_what_cannot_boot_is_infeasible_with_its_class(study: dict[str, Any]) -> None:
    """A KV cache that is surely too small may be ruled out by arithmetic; where it was booted, its class is told."""
    failed = [t for t in study["result"]["trials"] if t["failure"]]
    classes = {"no room" if t["flags"].get("kv-cache-memory-bytes") == "128K" else "method": set() for t in failed}
    for t in failed:
        kind = "no room" if t["flags"].get("kv-cache-memory-bytes") == "128K" else "method"
        classes[kind].add(t["failure"]["class"])
    assert classes["method"] == {"unsupported_quantization"}
    assert classes.get("no room", set()) <= {"kv_cache_too_small", "unsupported_quantization"}
    assert all(not t["points"] for t in failed)


def test_no_configuration_that_failed_is_exported(study: dict[str, Any]) -> None:
    flags = dict(study["result"]["recommendation"]["config"]["flags"])
    assert flags.get("kv-cache-memory-bytes") != "128K" and "quantization" not in flags


def test_vllm_serves_a_completion_from_the_exported_file(study: dict[str, Any], vllm: VllmInstall) -> None:
    best, model = study["folder"] / "out/best", study["result"]["recommendation"]["provenance"]["model"]
    spec = EngineSpec(
        install=vllm,
        model=model,
        config=LaunchConfig.of({"config": str(best / "vllm.yaml")}),
        run_id="e2e-export",
        log_path=study["folder"] / "export.log",
        cache_root=study["folder"] / "out/cache",
    )
    with boot(spec) as engine:
        body = json.dumps({"model": engine.model_name, "prompt": "one two", "max_tokens": 5}).encode()
        request = urllib.request.Request(
            f"{engine.base_url}/v1/completions", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert json.load(answer)["usage"]["completion_tokens"] == 5


def test_the_same_command_again_goes_on_from_what_is_there(study: dict[str, Any], vllm: VllmInstall) -> None:
    before = len(study["result"]["trials"])
    done = autotune(
        "run", "--gpu", "cpu", "--space", "space.yaml", "--trials", "6", "--window", "2s", "--out", "out",
        "--no-ablation",
        "--vllm-python", str(vllm.python), "--seed=1", "--allow-unverified-precision", "--json", cwd=study["folder"],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    again = json.loads((study["folder"] / "out/best/result.json").read_text())
    assert len(again["trials"]) == before
    assert json.loads(done.stdout)["verdict"] == study["result"]["recommendation"]["verdict"]
    assert os.access(study["folder"] / "out/best/launch.sh", os.X_OK)
