#!/bin/sh
# vLLM's own preset for throughput.
exec vllm serve Qwen/Qwen3-14B --performance-mode throughput
