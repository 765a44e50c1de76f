"""Plain against warm boots of one engine, alternating in random order. Prints medians, writes every boot as JSON.

python benchmarks/boot/compare.py --vllm-python ~/vllm/bin/python --rounds 10
python benchmarks/boot/compare.py --model DIR --flags '{"load-format": "dummy", "enforce-eager": true}' --env '{}'

Each boot is proven ready (one completion), asked for a greedy text and its resolved scheduler configuration, which must
be equal for both kinds, and stopped. The warm server's own imports are paid once and printed beside.
"""

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from autotune.engine import probe
from autotune.engine.boot import boot
from autotune.engine.demo_model import default_demo_folder, write_demo_model
from autotune.engine.engine import Engine
from autotune.engine.install import resolve_install
from autotune.engine.process import find_marked
from autotune.engine.types import BootFailed, EngineSpec
from autotune.engine.warm import WarmServer
from autotune.space.config import LaunchConfig

CPU_FLAGS = {
    "enforce-eager": True,
    "distributed-executor-backend": "uni",
    "kv-cache-memory-bytes": "64M",
    "max-model-len": 512,
}
CPU_ENV = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}


def greedy_text(engine: Engine) -> str:
    """What the engine says to a fixed prompt."""
    body = {"model": engine.model_name, "prompt": [5, 6, 7, 8], "max_tokens": 16, "temperature": 0.0}
    text: str = probe.ask(engine.port, "/v1/completions", body=body, limit_s=120).json()["choices"][0]["text"]
    return text


def one_boot(spec: EngineSpec, warm: WarmServer | None) -> dict[str, Any]:
    """Boot, ask, stop; what it took and what it said."""
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
            "text": greedy_text(engine),
            "scheduler": engine.resolved_config().get("scheduler_config"),
        }
    return {**row, "stop_s": round(engine.stop().stop_s, 2)}


def compare(spec: EngineSpec, rounds: int, folder: Path) -> tuple[list[dict[str, Any]], float]:
    """All boots in the order that they were made, and the seconds of the warm server's imports."""
    began = time.monotonic()
    rows = []
    with WarmServer(spec, folder / "warm.log") as warm:
        warm.wait_ready()
        imports_s = time.monotonic() - began
        for number in range(rounds):
            for kind in random.sample(["plain", "warm"], 2):
                named = replace(spec, log_path=folder / f"{number}-{kind}.log")
                rows.append({"wanted": kind, **one_boot(named, warm if kind == "warm" else None)})
                print(json.dumps(rows[-1])[:400], file=sys.stderr, flush=True)
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
    for what in ("text", "scheduler", "kv_tokens"):
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
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="boots-") as name:
        folder = args.logs or Path(name)
        spec = EngineSpec(
            install=resolve_install(args.vllm_python),
            model=str(args.model or write_demo_model(default_demo_folder())),
            config=LaunchConfig.of(args.flags, args.env),
            run_id=f"compare-boots-{os.getpid()}",
            log_path=folder / "engine.log",
            cache_root=args.cache or Path(name) / "cache",
        )
        rows, imports_s = compare(spec, args.rounds, folder)
        left = find_marked(spec.run_id)
    if args.out:
        args.out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    print(summary(rows, imports_s))
    print(f"processes left behind: {len(left)}")


if __name__ == "__main__":
    main()
