"""Reads vLLM's Prometheus counters.

The server's own counts are the second witness beside the load client: both must agree on the tokens. Values
of several engine processes behind one server are added up. Names have changed between versions; each value is
looked for under all the names that it has had.
"""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMetrics:
    """One scrape. Counters count since the boot; ``kv_usage`` is a share from 0 to 1 (the fullest engine's).

    ``at_s`` is the monotonic clock's time of the scrape. ``finished`` counts requests by finish reason.
    ``cache_config_info`` holds vLLM's resolved cache configuration as text.
    """

    at_s: float
    generation_tokens: float = 0.0
    prompt_tokens: float = 0.0
    preemptions: float = 0.0
    kv_usage: float = 0.0
    running: float = 0.0
    waiting: float = 0.0
    prefix_queries: float = 0.0
    prefix_hits: float = 0.0
    finished: Mapping[str, float] = field(default_factory=dict)
    cache_config_info: Mapping[str, str] = field(default_factory=dict)

    @property
    def pending(self) -> float:
        """Requests that the engine has accepted and not finished."""
        return self.running + self.waiting

    @property
    def kv_tokens(self) -> int | None:
        """Capacity of the KV cache in tokens, None where this version does not tell."""
        info = self.cache_config_info
        if (tokens := _whole(info.get("kv_cache_size_tokens"))) is not None:
            return tokens
        blocks, size = _whole(info.get("num_gpu_blocks")), _whole(info.get("block_size"))
        return blocks * size if blocks and size else None


def parse_metrics(text: str, *, at_s: float | None = None) -> EngineMetrics:
    """Read the text that ``/metrics`` answers; values that are not finite are left out. Raises ValueError."""
    samples = list(_samples(text))
    return EngineMetrics(
        at_s=time.monotonic() if at_s is None else at_s,
        generation_tokens=_sum(samples, "generation_tokens_total"),
        prompt_tokens=_sum(samples, "prompt_tokens_total"),
        preemptions=_sum(samples, "num_preemptions_total"),
        kv_usage=max(_values(samples, "kv_cache_usage_perc", "gpu_cache_usage_perc"), default=0.0),
        running=_sum(samples, "num_requests_running"),
        waiting=_sum(samples, "num_requests_waiting"),
        prefix_queries=_sum(samples, "prefix_cache_queries_total", "gpu_prefix_cache_queries_total"),
        prefix_hits=_sum(samples, "prefix_cache_hits_total", "gpu_prefix_cache_hits_total"),
        finished=_by_label(samples, "request_success_total", "finished_reason"),
        cache_config_info=next((s.labels for s in samples if s.name == "vllm:cache_config_info"), {}),
    )


def _samples(text: str) -> Iterable[Sample]:
    # Histograms make up nine tenths of the text and none of the answer; parsing them would cost tens of ms.
    wanted = [line for line in text.splitlines() if line.startswith("vllm:") and "_bucket{" not in line]
    for family in text_string_to_metric_families("\n".join([*wanted, ""])):
        yield from family.samples


def _values(samples: Sequence[Sample], *names: str) -> list[float]:
    """All values under the first of the names that is there: some versions export the old and the new one."""
    for name in names:
        if values := [s.value for s in samples if s.name == f"vllm:{name}" and math.isfinite(s.value)]:
            return values
    return []


def _sum(samples: Sequence[Sample], *names: str) -> float:
    return sum(_values(samples, *names))


def _by_label(samples: Iterable[Sample], name: str, label: str) -> dict[str, float]:
    totals: dict[str, float] = {}
    for sample in samples:
        if sample.name == f"vllm:{name}":
            key = sample.labels.get(label, "")
            totals[key] = totals.get(key, 0.0) + sample.value
    return totals


def _whole(text: str | None) -> int | None:
    try:
        return int(float(text)) if text else None
    except ValueError:  # such as "None" or "auto"
        return None
