#!/bin/sh
# The flags that three public tuning articles print for Qwen3-14B, together: what many run in production.
exec vllm serve Qwen/Qwen3-14B \
  --quantization fp8 \
  --kv-cache-dtype fp8 \
  --enforce-eager \
  --block-size 32 \
  --gpu-memory-utilization 0.95 \
  --max-num-batched-tokens 8192 \
  --max-num-seqs 256
