"""The installed vLLM is read live, and what autotune exports passes its own check."""

from pathlib import Path

import pytest
from fake_vllm import make_fake_python

from autotune.check.check import check_target
from autotune.check.gpus import named_devices
from autotune.export.formats import FORMATS
from autotune.space.config import LaunchConfig
from autotune.store.recommendation import Provenance, Recommendation

PROVENANCE = Provenance(
    study="s",
    measured_at="2026-01-02",
    autotune_version="0.1.0",
    vllm_version="0.32.0",
    vllm_distribution="vllm",
    host_fingerprint="0123456789ab",
    device="NVIDIA H200",
    driver="580.1",
    model="Qwen/Qwen3-14B",
    model_revision="8f7a",
    workload="chat",
    objective="throughput",
    retune_when="vLLM changes",
)
TUNED = Recommendation(
    verdict="adopt",
    config=LaunchConfig.of(
        {"max-num-seqs": 512, "enable-prefix-caching": False, "kv-cache-dtype": "fp8"}, {"VLLM_LOGGING_LEVEL": "INFO"}
    ),
    fixed=LaunchConfig.of({"max-model-len": 4096}),
    unit="tok/s",
    baseline=None,
    best=None,
    gain=None,
    reasons=(),
    boot_s=60.0,
    provenance=PROVENANCE,
)
COMMANDS = ("vllm", "shell", "systemd", "docker", "compose", "kubernetes", "kserve", "llm-d")


def test_the_installed_version_is_read_from_its_own_sources(tmp_path: Path) -> None:
    """The stand-in's sources lack most flags of the release whose number it bears."""
    python = make_fake_python(tmp_path / "venv")
    report = check_target("vllm serve m --max-num-seqs 8 --disable-cascade-attn", python=python, environ={})
    (checked,) = report.launches
    assert checked.vllm == "0.32.0" and checked.vllm_why == f"installed ({python})"
    (finding,) = checked.findings
    assert finding.code == "flag-removed" and "this build" in finding.why


def test_another_version_is_not_looked_up_here(tmp_path: Path) -> None:
    report = check_target("vllm serve m", vllm="0.24.0", python=tmp_path / "none", environ={})
    assert report.launches[0].vllm == "0.24.0"


@pytest.mark.parametrize("name", COMMANDS)
def test_what_autotune_exports_passes_its_own_check(name: str, tmp_path: Path) -> None:
    path = tmp_path / FORMATS[name].file_name
    path.write_text(FORMATS[name].render(TUNED))
    report = check_target(str(path), vllm="0.32.0", device=named_devices()["h200"], environ={"HF_HOME": "/none"})
    (checked,) = report.launches
    assert checked.findings == ()
