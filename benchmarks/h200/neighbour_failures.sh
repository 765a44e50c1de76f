#!/usr/bin/env bash
# Boots that run out of memory because a neighbour on the GPU holds it; their logs become test data.
#
#   neighbour_failures.sh MODEL LOG_FOLDER
#
# First three boots at once beside a neighbour that leaves 6 GiB: two whose small share is granted and whose weights do
# not fit, and one whose share is not free. Then one whose neighbour takes the rest while it captures CUDA graphs (its
# compile cache stays in VLLM_CACHE_ROOT). The exit code and the seconds of each boot are in LOG_FOLDER/neighbour.tsv.
set -uo pipefail
model=$1 logs=$2 here=$(dirname "$0")
mkdir -p "$logs"
small_steps="--quantization fp8 --kv-cache-dtype fp8 --max-num-batched-tokens 2048 --max-num-seqs 512 --max-model-len 768"

serve() { # NAME PORT FLAGS…: boot until it ends, or serves, which is a finding too
    local name=$1 port=$2 at=$SECONDS server code; shift 2
    setsid timeout --kill-after 10 240 python3 -m vllm.entrypoints.cli.main serve "$model" --load-format dummy \
        --attention-backend FLASH_ATTN --host 127.0.0.1 --port "$port" "$@" >"$logs/$name.log" 2>&1 &
    server=$!
    while kill -0 $server 2>/dev/null; do
        grep -q "Application startup complete" "$logs/$name.log" && kill -- -$server
        sleep 1
    done
    wait $server; code=$?
    printf '%s\t%s\t%s\t%s\n' "$name" $code $((SECONDS - at)) "$*" >>"$logs/neighbour.tsv"
}

python3 "$here/neighbour.py" 6144 >"$logs/neighbour-1.out" 2>&1 &
neighbour=$!
until grep -q took "$logs/neighbour-1.out" || ! kill -0 $neighbour 2>/dev/null; do sleep 0.2; done
serve weights-bf16 18101 --gpu-memory-utilization 0.01 & boots=$!
serve weights-fp8 18102 --gpu-memory-utilization 0.01 --quantization fp8 --kv-cache-dtype fp8 & boots="$boots $!"
serve memory-taken 18103 & boots="$boots $!"
# shellcheck disable=SC2086  # the process ids and the flags are words
wait $boots
kill $neighbour; wait $neighbour 2>/dev/null

python3 "$here/neighbour.py" 64 "$logs/graphs-fp8.log" "Capturing CUDA graphs" >"$logs/neighbour-2.out" 2>&1 &
neighbour=$!
# shellcheck disable=SC2086
serve graphs-fp8 18104 $small_steps
kill $neighbour; wait $neighbour 2>/dev/null
cat "$logs"/neighbour-?.out "$logs/neighbour.tsv"
