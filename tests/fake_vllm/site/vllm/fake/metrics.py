"""Counters, gauges and histograms in Prometheus' text format, under vLLM's names."""

import os
import resource
from bisect import bisect_left

SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
REASONS = ("stop", "length", "abort", "error", "repetition")
HISTOGRAMS = (
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "request_time_per_output_token_seconds",
    "e2e_request_latency_seconds",
    "request_queue_time_seconds",
)


class Histogram:
    """Observations in the buckets of ``SECONDS``."""

    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Add one observation."""
        self.counts[bisect_left(SECONDS, value)] += 1
        self.sum += value

    def lines(self, name: str, labels: str) -> list[str]:
        """All lines of the histogram."""
        out, total = [f"# TYPE {name} histogram"], 0
        for bound, count in zip((*map(str, SECONDS), "+Inf"), self.counts, strict=True):
            total += count
            out.append(f'{name}_bucket{{{labels},le="{bound}"}} {float(total)}')
        return [*out, f"{name}_sum{{{labels}}} {self.sum}", f"{name}_count{{{labels}}} {float(total)}"]


class Metrics:
    """All numbers of one server. ``factor`` makes the token counter lie."""

    def __init__(self, served_name: str, cache: dict[str, object], factor: float = 1.0) -> None:
        self.labels = f'engine="0",model_name="{served_name}"'
        self.cache = cache
        self.factor = factor
        self.engine: dict[str, float] = {}
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.cached_tokens = 0
        self.finished = dict.fromkeys(REASONS, 0)
        self.histograms = {name: Histogram() for name in HISTOGRAMS}

    def render(self) -> str:
        """The body of ``/metrics``."""
        get = self.engine.get
        lines = [
            *self._one("gauge", "num_requests_running", get("running", 0)),
            *self._one("gauge", "num_requests_waiting", get("waiting", 0)),
            *self._one("gauge", "kv_cache_usage_perc", get("kv_usage", 0)),
            *self._one("counter", "num_preemptions_total", get("preemptions", 0)),
            *self._one("counter", "prefix_cache_queries_total", get("queries", 0)),
            *self._one("counter", "prefix_cache_hits_total", get("hits", 0)),
            *self._one("counter", "prompt_tokens_total", self.prompt_tokens),
            *self._one("counter", "prompt_tokens_cached_total", self.cached_tokens),
            *self._one("counter", "generation_tokens_total", int(self.generation_tokens * self.factor)),
            "# TYPE vllm:request_success_total counter",
        ]
        for reason, count in self.finished.items():
            lines.append(f'vllm:request_success_total{{{self.labels},finished_reason="{reason}"}} {float(count)}')
        for name, histogram in self.histograms.items():
            lines += histogram.lines(f"vllm:{name}", self.labels)
        info = ",".join(f'{key}="{value}"' for key, value in self.cache.items())
        lines += ["# TYPE vllm:cache_config_info gauge", f'vllm:cache_config_info{{engine="0",{info}}} 1.0']
        return "\n".join([*lines, *_process()]) + "\n"

    def _one(self, kind: str, name: str, value: float) -> list[str]:
        family = name.removesuffix("_total")
        return [f"# TYPE vllm:{family} {kind}", f"vllm:{name}{{{self.labels}}} {float(value)}"]


def _process() -> list[str]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    seconds = usage.ru_utime + usage.ru_stime
    files = len(os.listdir("/proc/self/fd"))
    return [
        "# TYPE process_cpu_seconds_total counter",
        f"process_cpu_seconds_total {seconds}",
        "# TYPE process_open_fds gauge",
        f"process_open_fds {float(files)}",
    ]
