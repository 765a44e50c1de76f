"""The comment head that every exported file carries: where its numbers come from and when they expire."""

from autotune.store.recommendation import Recommendation


def comment_lines(recommendation: Recommendation, mark: str = "#") -> list[str]:
    """One fact a line, each behind ``mark``."""
    p = recommendation.provenance
    facts = [
        f"Written by vllm-autotune {p.autotune_version} on {p.measured_at}, study {p.study}.",
        f"Measured: vLLM {p.vllm_version} ({p.vllm_distribution}) on {p.device}, driver {p.driver}, "
        f"host {p.host_fingerprint}.",
        f"Model: {p.model}, revision {p.model_revision}. Workload: {p.workload}. Objective: {p.objective}.",
        f"Verdict: {recommendation.verdict}; gain over vLLM's defaults: {recommendation.gain_text()}.",
        f"Tune again when: {p.retune_when}.",
    ]
    return [f"{mark} {line}" for line in facts]
