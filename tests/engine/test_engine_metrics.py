"""Reading /metrics as several versions of vLLM write it."""

import pytest

from autotune.engine.metrics import parse_metrics

TEXT = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
# TYPE vllm:prefix_cache_queries counter
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 100.0
vllm:prefix_cache_queries_created{engine="0",model_name="m"} 1.7e+09
# TYPE vllm:gpu_prefix_cache_queries counter
vllm:gpu_prefix_cache_queries_total{engine="0",model_name="m"} 100.0
# TYPE vllm:prefix_cache_hits counter
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 40.0
# TYPE vllm:num_preemptions counter
vllm:num_preemptions_total{engine="0",model_name="m"} 11.0
# TYPE vllm:prompt_tokens counter
vllm:prompt_tokens_total{engine="0",model_name="m"} 512.0
# TYPE vllm:generation_tokens counter
vllm:generation_tokens_total{engine="0",model_name="m"} 1.0e+06
# TYPE vllm:request_success counter
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 5.0
vllm:request_success_total{engine="1",finished_reason="stop",model_name="m"} 6.0
vllm:request_success_total{engine="0",finished_reason="error",model_name="m"} 1.0
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.001",model_name="m"} 0.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="m"} 12.0
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="128",cache_dtype="auto",kv_cache_size_tokens="65536",num_gpu_blocks="512"} 1.0
# TYPE process_cpu_seconds counter
process_cpu_seconds_total 12.5
"""


def test_counters_are_added_over_engines_and_old_names_are_not_counted_twice() -> None:
    metrics = parse_metrics(TEXT, at_s=7.0)
    assert metrics.at_s == 7.0
    assert (metrics.running, metrics.waiting, metrics.pending) == (7, 2, 9)
    assert metrics.kv_usage == 0.75
    assert (metrics.prefix_queries, metrics.prefix_hits) == (100, 40)
    assert (metrics.preemptions, metrics.prompt_tokens, metrics.generation_tokens) == (11, 512, 1_000_000)
    assert metrics.finished == {"stop": 11, "error": 1}
    assert metrics.kv_tokens == 65536


@pytest.mark.parametrize(
    ("labels", "tokens"),
    [
        ('block_size="16",num_gpu_blocks="1000"', 16000),
        ('block_size="16",num_gpu_blocks="None"', None),
        ('block_size="16"', None),
    ],
)
def test_kv_tokens_of_versions_that_give_blocks(labels: str, tokens: int | None) -> None:
    assert parse_metrics(f"vllm:cache_config_info{{{labels}}} 1.0\n").kv_tokens == tokens


def test_old_names_are_read_where_the_new_ones_are_missing() -> None:
    text = 'vllm:gpu_cache_usage_perc{model_name="m"} 0.5\nvllm:gpu_prefix_cache_hits_total{model_name="m"} 3\n'
    metrics = parse_metrics(text)
    assert (metrics.kv_usage, metrics.prefix_hits) == (0.5, 3)


def test_an_engine_without_statistics_reads_as_zero() -> None:
    metrics = parse_metrics("process_cpu_seconds_total 1\n")
    assert (metrics.generation_tokens, metrics.kv_tokens, metrics.finished) == (0, None, {})


def test_values_that_are_no_numbers_are_left_out() -> None:
    metrics = parse_metrics('vllm:num_preemptions_total{engine="0"} NaN\nvllm:num_preemptions_total{engine="1"} 2\n')
    assert metrics.preemptions == 2
    assert parse_metrics("vllm:num_requests_running +Inf\n").running == 0
