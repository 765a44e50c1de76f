#!/usr/bin/env bash
# Boots that must fail for memory, each in another phase; their logs become test data.
#
#   memory_failures.sh MODEL LOG_FOLDER SECONDS GPU
#
# Runs down the list until SECONDS are over; what has a log already is skipped. Only vLLM and the standard library
# are needed. The exit code and the seconds of each boot are in LOG_FOLDER/boots.tsv.
set -uo pipefail
model=$1 logs=$2 seconds=$3 gpu=$4
mkdir -p "$logs"
export CUDA_VISIBLE_DEVICES=$gpu VLLM_ALLOW_LONG_MAX_MODEL_LEN=1
began=$SECONDS

boots=(
    "no-room-for-kv           --gpu-memory-utilization 0.2"
    "one-request-too-long     --max-model-len 800000"
    "utilization-too-high     --gpu-memory-utilization 0.997"
    "profile-run              --max-num-batched-tokens 1048576"
    "kv-cache-of-130-gb       --kv-cache-memory-bytes 130G"
    "sampler-warm-up          --gpu-memory-utilization 0.985 --max-num-seqs 16384 --max-num-batched-tokens 16384"
    "kv-cache-of-112-gb       --kv-cache-memory-bytes 112G"
    "kv-below-one-request     --kv-cache-memory-bytes 1G"
    "blocks-override          --num-gpu-blocks-override 60000"
    "below-the-weights        --gpu-memory-utilization 0.1"
    "profile-run-eager        --enforce-eager --max-num-batched-tokens 524288 --gpu-memory-utilization 0.97"
    "fp8-profile-run          --quantization fp8 --max-num-batched-tokens 1048576"
    "fp8-kv-too-long          --kv-cache-dtype fp8 --max-model-len 1500000"
    "tiny-share               --gpu-memory-utilization 0.05"
)

for boot in "${boots[@]}"; do
    read -r name flags <<<"$boot"
    [ -e "$logs/$name.log" ] && continue
    [ $((SECONDS - began)) -ge "$seconds" ] && break
    at=$SECONDS
    # shellcheck disable=SC2086  # the flags are words
    setsid timeout --kill-after 10 150 python3 -m vllm.entrypoints.cli.main serve "$model" --load-format dummy \
        --attention-backend FLASH_ATTN --host 127.0.0.1 --port $((18000 + gpu)) $flags >"$logs/$name.log" 2>&1 &
    server=$!
    # A boot that does not fail is a finding too: it is ended as soon as it serves.
    while kill -0 $server 2>/dev/null; do
        grep -q "Application startup complete" "$logs/$name.log" && kill -- -$server
        sleep 1
    done
    wait $server
    printf '%s\t%s\t%s\t%s\n' "$name" $? $((SECONDS - at)) "$flags" >>"$logs/boots.tsv"
done
