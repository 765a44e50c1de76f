"""What an engine shows for its flags: a flag without effect is named, one that did something is not."""

import pytest

from autotune.engine.effect import Effect, without_effect

PLAIN = Effect(weights_bytes=269_000_000, kv_bytes_per_token=23_040, attention_backend="FLASH_ATTN", dtype="bfloat16")


@pytest.mark.parametrize(
    ("flag", "value", "seen", "words"),
    [
        ("quantization", "int8", Effect(weights_bytes=100, quantized_layers=0), "0 layers"),
        ("quantization", "fp8", Effect(weights_bytes=269_100_000, quantized_layers=210), None),
        ("quantization", "fp8", Effect(weights_bytes=269_100_000), "weights take 0.25 GiB"),
        ("quantization", "fp8", Effect(weights_bytes=140_000_000), None),
        ("kv-cache-dtype", "fp8", Effect(kv_bytes_per_token=23_040), "23040 bytes"),
        ("kv-cache-dtype", "fp8", Effect(kv_bytes_per_token=11_520), None),
        ("kv-cache-dtype", "float16", Effect(kv_bytes_per_token=23_040), None),
        ("kv-cache-dtype", "fp8", Effect(), None),
        ("attention-backend", "FLASHINFER", Effect(attention_backend="FLASHINFER"), None),
        ("attention-backend", "FLASHINFER", Effect(attention_backend="FLASH_ATTN"), "uses FLASH_ATTN"),
        ("attention-backend", "FLASH_ATTN", Effect(attention_backend="FlashAttention"), "takes anyway"),
        ("attention-backend", "FLASH_ATTN", Effect(), None),
        ("dtype", "bfloat16", Effect(dtype="bfloat16"), "as without it"),
        ("dtype", "float32", Effect(dtype="float32"), None),
        ("max-num-seqs", "8", PLAIN, None),
    ],
)
def test_one_flag(flag: str, value: str, seen: Effect, words: str | None) -> None:
    found = without_effect({flag: value}, seen, PLAIN)
    assert (found == {}) if words is None else words in found[flag]
