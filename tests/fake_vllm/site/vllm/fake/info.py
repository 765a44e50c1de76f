"""What the server tells about its own configuration."""

from typing import Any

from vllm.fake.settings import Settings


def cache_info(settings: Settings) -> dict[str, object]:
    """Labels of ``vllm:cache_config_info``."""
    flags = settings.flags
    return {
        "block_size": settings.block_size,
        "cache_dtype": flags.get("kv-cache-dtype"),
        "enable_prefix_caching": flags.get("enable-prefix-caching"),
        "gpu_memory_utilization": flags.get("gpu-memory-utilization"),
        "kv_cache_memory_bytes": flags.get("kv-cache-memory-bytes"),
        "kv_cache_max_concurrency": settings.kv_tokens / settings.model_len,
        "kv_cache_size_tokens": settings.kv_tokens,
        "num_gpu_blocks": settings.kv_tokens // settings.block_size,
    }


def resolved_config(settings: Settings) -> dict[str, Any]:
    """The configuration as the engine uses it; a flag in ``ignored_flags`` shows its default."""
    flags = settings.flags
    return {
        "model_config": {
            "model": settings.model,
            "dtype": "torch.bfloat16" if flags.get("dtype", "auto") == "auto" else f"torch.{flags['dtype']}",
            "max_model_len": settings.model_len,
            "quantization": flags.get("quantization"),
            "enforce_eager": flags.get("enforce-eager", False),
        },
        "cache_config": {key: value for key, value in cache_info(settings).items() if not key.startswith("kv_cache_m")}
        | {"kv_cache_memory_bytes": flags.get("kv-cache-memory-bytes")},
        "scheduler_config": {
            "max_num_seqs": settings.max_num_seqs,
            "max_num_batched_tokens": settings.max_num_batched_tokens,
            "enable_chunked_prefill": flags.get("enable-chunked-prefill", True),
            "async_scheduling": flags.get("async-scheduling") is not False,
            "scheduler_cls": flags.get("scheduler-cls"),
        },
        "parallel_config": {"tensor_parallel_size": flags.get("tensor-parallel-size", 1)},
        "attention_config": {"backend": flags.get("attention-backend")},
    }
