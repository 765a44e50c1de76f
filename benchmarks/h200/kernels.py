"""Where an engine's steps go: GPU time by kind of kernel, and how long the GPU waits, from torch's profiler.

    python benchmarks/h200/kernels.py --model DIR --vocab-size 151936 --flags '{…}' --cache DIR --out kernels.jsonl

One engine answers the whole mix (512 tokens in, 256 out) and answers alone (16 in, 256 out), 256 in flight; each load
is profiled for a second once it is steady. Shares are of the profiled time; "idle" is when no kernel ran.
"""

import argparse
import gzip
import json
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gap import ANSWERS, MIX, one_load

from autotune.engine import probe
from autotune.engine.boot import boot
from autotune.engine.engine import Engine
from autotune.engine.install import resolve_install
from autotune.engine.types import EngineSpec
from autotune.space.config import LaunchConfig

KINDS = {
    "quantization, norms, activations": ("triton",),
    "KV cache writes": ("reshape_and_cache",),
    "attention": ("flash", "fmha", "attn"),
    "matrix products": ("gemm", "cutlass", "nvjet", "cublas", "matmul", "splitk"),
    "sampling": ("sampl", "softmax", "argmax", "topk", "sort", "gumbel"),
    "copies": ("memcpy", "memset"),
}


def kind_of(kernel: str) -> str:
    """The kind that a kernel's name tells."""
    name = kernel.lower()
    return next((kind for kind, words in KINDS.items() if any(word in name for word in words)), "other kernels")


def busy_us(spans: Iterable[tuple[float, float]]) -> float:
    """Length of the union of spans in microseconds."""
    total, end = 0.0, float("-inf")
    for start, stop in sorted(spans):
        total += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return total


def shares(trace: Path) -> dict[str, Any]:
    """Shares of the traced time by kind, and the ten kernels that took most."""
    with gzip.open(trace, "rt") if trace.suffix == ".gz" else trace.open() as file:
        events = [e for e in json.load(file)["traceEvents"] if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    spans = [(e["ts"], e["ts"] + e["dur"]) for e in events]
    wall = max(stop for _, stop in spans) - min(start for start, _ in spans)
    kinds: dict[str, float] = defaultdict(float)
    names: dict[str, float] = defaultdict(float)
    for event in events:
        kinds[kind_of(event["name"])] += event["dur"] / wall
        names[event["name"][:120]] += event["dur"] / wall
    return {
        "traced_s": wall / 1e6,
        "idle": 1 - busy_us(spans) / wall,
        "kinds": dict(kinds),
        "kernels": sorted(names.items(), key=lambda item: -item[1])[:10],
    }


def profiled(engine: Engine, shape: tuple[str, int, int], seed: int, vocab_size: int, traces: Path) -> dict[str, Any]:
    """One load, a second of it profiled from its eighth second on."""
    found: dict[str, Any] = {}
    before = set(traces.glob("*.json*"))
    load = threading.Thread(target=lambda: found.update(one_load(engine, shape, 256, seed, vocab_size)))
    load.start()
    time.sleep(8)
    probe.ask(engine.port, "/start_profile", body={}, limit_s=60)
    time.sleep(1)
    probe.ask(engine.port, "/stop_profile", body={}, limit_s=120)
    load.join()
    trace = max(set(traces.glob("*.json*")) - before, key=lambda path: path.stat().st_size)
    return {**found, **shares(trace)}


def main() -> None:
    """Parse, boot, load, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--vocab-size", type=int, required=True)
    parser.add_argument("--flags", type=json.loads, default={})
    parser.add_argument("--cache", type=Path, required=True, help="VLLM_CACHE_ROOT")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, args.out.open("w", encoding="utf-8") as out:
        traces = Path(scratch) / "traces"
        profiler = {"profiler": "torch", "torch_profiler_dir": str(traces), "torch_profiler_with_stack": False}
        spec = EngineSpec(
            install=resolve_install(None),
            model=args.model,
            config=LaunchConfig.of({**args.flags, "profiler-config": json.dumps(profiler)}, {}),
            run_id="kernels",
            log_path=args.out.with_suffix(".log"),
            cache_root=args.cache,
        )
        with boot(spec) as engine:
            for seed, shape in enumerate([MIX, ANSWERS]):
                line = json.dumps(profiled(engine, shape, 500 + seed, args.vocab_size, traces))
                print(line, file=sys.stderr, flush=True)
                out.write(line + "\n")


if __name__ == "__main__":
    main()
