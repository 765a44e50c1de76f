"""Finished studies for the re-tune tests: written down as a run would have left them, without running one."""

import json
from dataclasses import replace
from pathlib import Path

from autotune.engine.demo_model import write_demo_model
from autotune.export import shell, vllm
from autotune.export.files import write_atomic
from autotune.host.detect import read_host
from autotune.host.select import select_device
from autotune.space.config import LaunchConfig
from autotune.store.recommendation import Interval, Provenance, Recommendation
from autotune.tuner.models import choose_model

CONFIG = LaunchConfig.of({"max-num-seqs": 16})


def recommendation(folder: Path, *, version: str = "0.31.0", config: LaunchConfig = CONFIG) -> Recommendation:
    """What a study of this machine ended with; its model lies in ``folder``."""
    model = choose_model(str(write_demo_model(folder / "model")))
    host = read_host()
    return Recommendation(
        verdict="adopt" if config.flags else "keep-default",
        config=config,
        fixed=LaunchConfig.of({"max-model-len": 512}),
        unit="tok/s",
        baseline=Interval(500, 490, 510),
        best=Interval(700, 690, 710),
        gain=Interval(0.4, 0.35, 0.45),
        reasons=("won",),
        boot_s=1.0,
        provenance=Provenance(
            study="s",
            measured_at="2026-01-02 03:04 UTC",
            autotune_version="0.1.0",
            vllm_version=version,
            vllm_distribution="vllm",
            host_fingerprint=host.fingerprint(),
            device=select_device(host, "cpu").name,
            driver=host.driver_version or "none",
            model=model.serve,
            model_revision=model.revision,
            workload="demo, 16 in flight",
            objective="throughput",
            retune_when="vLLM changes",
        ),
    )


def write_study(root: Path, found: Recommendation, python: Path | None) -> Path:
    """A study's folder with its exports; returns it."""
    best = root / "best"
    data = {"recommendation": found.to_json(), "settings": {"vllm_python": str(python) if python else None}}
    write_atomic(best / "result.json", json.dumps(data))
    write_atomic(best / "vllm.yaml", vllm.render(found))
    write_atomic(best / "launch.sh", shell.render(found), executable=True)
    return root


def with_best(found: Recommendation, value: float) -> Recommendation:
    """The same with another figure on record, as uncertain as a busy test machine is."""
    return replace(found, best=Interval(value, 0.75 * value, 1.33 * value))
