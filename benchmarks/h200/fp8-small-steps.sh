#!/bin/sh
# What `autotune run` found best in the earlier slots: fp8 weights and KV cache, steps of 2048 tokens, twice the sequences.
exec vllm serve Qwen/Qwen3-14B \
  --quantization fp8 \
  --kv-cache-dtype fp8 \
  --max-num-batched-tokens 2048 \
  --max-num-seqs 512
