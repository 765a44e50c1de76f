#!/usr/bin/env bash
# On a GPU host, from the repository's root: start one study in the background, or follow and collect it.
#
#   slot_run.sh start MODEL RUN_FOLDER [autotune run options …]
#   slot_run.sh follow RUN_FOLDER SECONDS OUT
#
# The study runs in a session of its own, so that it outlives the command that started it. `follow` waits until it
# ends or SECONDS are over, and packs everything but the compile cache into OUT/run.tar.gz.
set -euo pipefail
action=$1; shift
case $action in
start)
    model=$1 folder=$2; shift 2
    mkdir -p "$folder"
    nvidia-smi --query-gpu=name,driver_version,memory.total,memory.used,clocks.sm --format=csv > "$folder/nvidia-smi.csv"
    python3 -m autotune detect --json > "$folder/detect.json"
    setsid nohup bash -c 'python3 -m autotune run --model "$0" "${@:2}" --out "$1/study" --json > "$1/result.json" 2> "$1/run.log"; echo $? > "$1/exit_code"' \
        "$model" "$folder" "$@" < /dev/null > /dev/null 2>&1 &
    ;;
follow)
    folder=$1 seconds=$2 out=$3
    for _ in $(seq "$seconds"); do [ -e "$folder/exit_code" ] && break; sleep 1; done
    tail -n 60 "$folder/run.log"; cat "$folder/exit_code" 2>/dev/null || echo "still running"
    tar -C "$folder" --exclude=study/cache -czf "$out/run.tar.gz" .
    ;;
esac
