"""The comment head that every exported file carries: where its numbers come from and when they expire."""

from collections.abc import Iterable

from autotune.export.serving import random_weights
from autotune.store.recommendation import Recommendation

RANDOM_WEIGHTS = "Measured with random weights (--load-format dummy); this loads the model's own."
KEEP_DEFAULT = (
    "No configuration was proven better than vLLM's defaults, so this starts them, "
    "with the flags that every engine of the study was given."
)


def facts(recommendation: Recommendation) -> dict[str, str]:
    """Where the recommendation comes from, one fact an entry."""
    p = recommendation.provenance
    return {
        "study": p.study,
        "measured-at": p.measured_at,
        "autotune-version": p.autotune_version,
        "vllm": f"{p.vllm_version} ({p.vllm_distribution})",
        "device": p.device,
        "driver": p.driver,
        "host": p.host_fingerprint,
        "model": f"{p.model}, revision {p.model_revision}",
        "workload": p.workload,
        "objective": p.objective,
        "verdict": recommendation.verdict,
        "gain": recommendation.gain_text(),
        "quality": p.quality,
        "retune-when": p.retune_when,
    }


def comment_lines(recommendation: Recommendation, mark: str = "#", usage: Iterable[str] = ()) -> list[str]:
    """One fact a line, each behind ``mark``, then how the file is used."""
    p = recommendation.provenance
    lines = [
        f"Written by vllm-autotune {p.autotune_version}, measured {p.measured_at}, study {p.study}.",
        f"Measured: vLLM {p.vllm_version} ({p.vllm_distribution}) on {p.device}, driver {p.driver}, "
        f"host {p.host_fingerprint}.",
        f"Model: {p.model}, revision {p.model_revision}. Workload: {p.workload}. Objective: {p.objective}.",
        f"Verdict: {recommendation.verdict}; gain over vLLM's defaults: {recommendation.gain_text()}.",
        f"Quality: {p.quality}.",
        *([KEEP_DEFAULT] if recommendation.verdict == "keep-default" else []),
        *([RANDOM_WEIGHTS] if random_weights(recommendation) else []),
        f"Tune again when: {p.retune_when}.",
        *usage,
    ]
    # A line break inside a value would end the comment.
    return [f"{mark} {' '.join(line.splitlines())}" for line in lines]
