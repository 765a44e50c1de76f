"""Plain against warm boots of one engine, alternating in random order. Prints medians, writes every boot as JSON.

python benchmarks/boot/compare.py --vllm-python ~/vllm/bin/python --rounds 10
python benchmarks/boot/compare.py --model DIR --flags '{"load-format": "dummy", "enforce-eager": true}' --env '{}'

Each boot is proven ready (one completion), asked for greedy texts, texts sampled with fixed seeds and its resolved
scheduler configuration, which must be equal for both kinds, loaded where ``--load`` says, and stopped. The warm
server's own imports are paid once and printed beside.
"""

import argparse
import itertools
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from autotune.engine import probe
from autotune.engine.boot import boot
from autotune.engine.demo_model import default_demo_folder, write_demo_model
from autotune.engine.engine import Engine
from autotune.engine.install import resolve_install
from autotune.engine.process import find_marked
from autotune.engine.types import BootFailed, EngineSpec
from autotune.engine.warm import WarmServer
from autotune.load.measure import measure
from autotune.load.types import LoadSpec, Target
from autotune.space.config import LaunchConfig
from autotune.workload.load import load_workload

CPU_FLAGS = {
    "enforce-eager": True,
    "distributed-executor-backend": "uni",
    "kv-cache-memory-bytes": "64M",
    "max-model-len": 512,
}
CPU_ENV = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}


def texts(engine: Engine) -> list[str]:
    """What the engine says to fixed prompts, one at a time: greedy, and sampled with a fixed seed."""
    found = []
    for first in range(5, 8):
        for sampling in ({"temperature": 0.0}, {"temperature": 1.0, "seed": first}):
            body = {"model": engine.model_name, "prompt": [first, 6, 7, 8], "max_tokens": 32, **sampling}
            answer = probe.ask(engine.port, "/v1/completions", body=body, limit_s=120).json()
            found.append(answer["choices"][0]["text"])
    return found


def tokens_per_s(engine: Engine, concurrency: int, seed: int, vocab_size: int) -> float:
    """Output tokens per second under a short closed load of 512 / 256 tokens."""
    found = measure(
        Target(engine.base_url, engine.model_name),
        load_workload("batch-512-256"),
        LoadSpec.closed(concurrency, min_s=6.0, max_s=8.0),
        seed=seed,
        point_id=f"boot-{seed}",
        vocab_size=vocab_size,
    )
    return round(found.output_tokens_per_s.value, 1)


def one_boot(spec: EngineSpec, warm: WarmServer | None, load: Callable[[Engine], dict[str, Any]]) -> dict[str, Any]:
    """Boot, ask, load, stop; what it took, what it said and how fast."""
    try:
        engine = boot(spec, warm=warm)
    except BootFailed as failed:
        return {"kind": "warm" if warm else "plain", "failure": str(failed.failure), "boot_s": failed.boot_s}
    with engine:
        report = engine.report
        row = {
            "kind": report.kind,
            "boot_s": round(report.boot_s, 2),
            "phases_s": {name: round(seconds, 2) for name, seconds in report.phases_s.items()},
            "kv_tokens": report.kv_tokens,
            "notes": report.notes,
            "texts": texts(engine),
            "scheduler": engine.resolved_config().get("scheduler_config"),
            **load(engine),
        }
    return {**row, "stop_s": round(engine.stop().stop_s, 2)}


def compare(
    spec: EngineSpec, rounds: int, folder: Path, load: Callable[[Engine], dict[str, Any]], out: TextIO
) -> tuple[list[dict[str, Any]], float]:
    """All boots in the order that they were made, each written to ``out`` at once, and the imports (s) once."""
    began = time.monotonic()
    rows = []
    with WarmServer(spec, folder / "warm.log") as warm:
        warm.wait_ready()
        imports_s = time.monotonic() - began
        for number in range(rounds):
            for kind in random.sample(["plain", "warm"], 2):
                named = replace(spec, log_path=folder / f"{number}-{kind}.log")
                rows.append({"wanted": kind, **one_boot(named, warm if kind == "warm" else None, load)})
                print(json.dumps(rows[-1]), file=out, flush=True)
    return rows, imports_s


def median(rows: Sequence[Mapping[str, Any]], kind: str, what: str) -> float:
    """Median over the boots of one kind."""
    values = [row[what] for row in rows if row["kind"] == kind and what in row]
    return statistics.median(values) if values else float("nan")


def summary(rows: Sequence[Mapping[str, Any]], imports_s: float) -> str:
    """The table that the script prints."""
    lines = []
    for kind in ("plain", "warm"):
        count = sum(row["kind"] == kind and "failure" not in row for row in rows)
        boot_s, stop_s = median(rows, kind, "boot_s"), median(rows, kind, "stop_s")
        lines.append(f"{kind:5}  {count:3} boots  median {boot_s:6.2f} s, stop {stop_s:5.2f} s")
    lines.append(f"warm server's imports, once: {imports_s:.1f} s")
    lines.append(
        f"a warm boot takes {median(rows, 'warm', 'boot_s') / median(rows, 'plain', 'boot_s'):.2f} of a plain one"
    )
    for kind in ("plain", "warm"):
        speeds = [f"{row['tok_s']:,.0f}" for row in rows if row["kind"] == kind and "tok_s" in row]
        lines += [f"{kind:5}  {', '.join(speeds)} tok/s"] if speeds else []
    for what in ("texts", "scheduler", "kv_tokens"):
        seen = {json.dumps(row.get(what), sort_keys=True) for row in rows if "failure" not in row}
        lines.append(f"{what:9} {'equal in all boots' if len(seen) == 1 else f'DIFFERS: {seen}'}")
    return "\n".join(lines)


def main() -> None:
    """Parse, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm-python", type=Path)
    parser.add_argument("--model", type=Path, help="a model's folder (default: the demonstration model)")
    parser.add_argument("--flags", type=json.loads, default=CPU_FLAGS, help="JSON object of vllm serve's flags")
    parser.add_argument("--env", type=json.loads, default=CPU_ENV, help="JSON object of environment variables")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--out", type=Path, help="write every boot here, one JSON object a line")
    parser.add_argument("--cache", type=Path, help="VLLM_CACHE_ROOT (default: one for this comparison)")
    parser.add_argument("--logs", type=Path, help="keep the engines' logs here")
    parser.add_argument("--load", type=int, metavar="CONCURRENCY", help="measure each boot under this load as well")
    parser.add_argument("--vocab-size", type=int, default=1000)
    args = parser.parse_args()
    seeds = itertools.count()

    def load(engine: Engine) -> dict[str, Any]:
        return {"tok_s": tokens_per_s(engine, args.load, next(seeds), args.vocab_size)} if args.load else {}

    with tempfile.TemporaryDirectory(prefix="boots-") as name, ExitStack() as stack:
        out = stack.enter_context(args.out.open("w", encoding="utf-8")) if args.out else sys.stderr
        folder = args.logs or Path(name)
        spec = EngineSpec(
            install=resolve_install(args.vllm_python),
            model=str(args.model or write_demo_model(default_demo_folder())),
            config=LaunchConfig.of(args.flags, args.env),
            run_id=f"compare-boots-{os.getpid()}",
            log_path=folder / "engine.log",
            cache_root=args.cache or Path(name) / "cache",
        )
        rows, imports_s = compare(spec, args.rounds, folder, load, out)
        left = find_marked(spec.run_id)
    print(summary(rows, imports_s))
    print(f"processes left behind: {len(left)}")


if __name__ == "__main__":
    main()
