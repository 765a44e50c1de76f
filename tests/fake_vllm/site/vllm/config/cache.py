"""Key-value cache settings."""

from dataclasses import dataclass
from typing import Literal

CacheDType = Literal[
    "auto",
    "float16",
    "bfloat16",
    "fp8",
    "fp8_e4m3",
    "fp8_e5m2",
    "int4_per_token_head",
    "int8_per_token_head",
    "fp8_per_token_head",
    "nvfp4",
]
PrefixCachingHashAlgo = Literal["sha256", "sha256_cbor", "xxhash", "xxhash_cbor"]
KVOffloadingBackend = Literal["native", "lmcache"]


@dataclass
class CacheConfig:
    """Size, type and reuse of the KV cache."""

    block_size: int | None = None
    gpu_memory_utilization: float = 0.92
    kv_cache_memory_bytes: int | None = None
    num_gpu_blocks_override: int | None = None
    cache_dtype: CacheDType = "auto"
    enable_prefix_caching: bool = True
    prefix_caching_hash_algo: PrefixCachingHashAlgo = "sha256"
    kv_offloading_size: float | None = None
    kv_offloading_backend: KVOffloadingBackend = "native"
    watermark: float = 0.0
