#!/bin/sh
# Written by vllm-autotune 0.1.0, measured 2026-11-30 22:25 UTC, study model-throughput-batch-512-256-h200-vllm-0.26.0.
# Measured: vLLM 0.26.0 (vllm) on NVIDIA H200, driver 580.159.04, host 25862089b0ee.
# Model: /tmp/model, revision sha256:051537009c18c450. Workload: batch-512-256, 256 in flight. Objective: throughput.
# Verdict: adopt; gain over vLLM's defaults: +53.0 % (95 % interval +44.7 to +61.7 %).
# Quality: speed only: quality was not measured.
# Measured with random weights (--load-format dummy); this loads the model's own.
# Tune again when: vLLM, the driver, the model, the workload or the machine changes.
# HOST, PORT and VLLM (the command) may be set by the caller; VLLM_API_KEY is read by vLLM itself.
set -eu
VLLM=${VLLM:-vllm}
exec "$VLLM" serve \
  /tmp/model \
  --host "${HOST:-127.0.0.1}" \
  --port "${PORT:-8000}" \
  --attention-backend FLASH_ATTN \
  --kv-cache-dtype fp8 \
  --max-model-len 768 \
  --max-num-batched-tokens 2048 \
  --max-num-seqs 512 \
  --quantization fp8 \
  "$@"
