"""Does a search's point read what the loop settles at, whatever the token budget? Real vLLM, one boot a budget.

    python benchmarks/load/turns.py --vllm-python ~/vllm/bin/python --out turns.jsonl
    python benchmarks/load/turns.py --model DIR --flags '{"load-format": "dummy"}' --env '{}' --vocab-size 151936 \\
        --budgets 1024,2048,8192 --concurrency 256 --input 512 --output 256 --window 10

Requests are equally long, so that the loop repeats itself turn by turn. For every budget: ``--points`` points as the
search takes them, and one load of ``--long`` seconds behind its warm-up, which is what they should say.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from autotune.engine.boot import boot
from autotune.engine.engine import Engine
from autotune.engine.install import resolve_install
from autotune.engine.types import EngineSpec
from autotune.engine.warm import WarmServer
from autotune.load.measure import measure
from autotune.load.types import LoadSpec, Target
from autotune.space.config import LaunchConfig
from autotune.tuner.models import choose_model
from autotune.workload.lengths import Lengths
from autotune.workload.types import RequestShape, Workload

CPU_FLAGS = {
    "enforce-eager": True,
    "distributed-executor-backend": "uni",
    "kv-cache-memory-bytes": "256M",
    "max-model-len": 512,
}
CPU_ENV = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}


def loads(options: argparse.Namespace) -> Iterator[tuple[str, LoadSpec]]:
    """What every engine is loaded with, in order."""
    for _ in range(options.points):
        yield (
            "point",
            LoadSpec.closed(options.concurrency, min_s=options.window, max_s=2 * options.window, precision=0.03),
        )
    yield "long", LoadSpec.closed(options.concurrency, min_s=options.long, max_s=options.long, precision=0.0)


def rows(engine: Engine, options: argparse.Namespace, vocab_size: int | None, budget: int) -> Iterator[dict[str, Any]]:
    """Every load of one engine."""
    shape = RequestShape("equal", Lengths.fixed(options.input), Lengths.fixed(options.output))
    target, workload = Target(engine.base_url, engine.model_name), Workload("equal", (shape,))
    for number, (what, load) in enumerate(loads(options)):
        if what == "long" and not options.long:
            return
        found = measure(target, workload, load, seed=number, point_id=f"turns-{budget}-{number}", vocab_size=vocab_size)
        yield {
            "budget": budget,
            "what": what,
            "tok_s": round(found.output_tokens_per_s.value, 1),
            "warmup_s": round(found.warmup_s, 2),
            "window_s": round(found.window_s, 2),
            "stopped": found.stopped,
            "problems": found.problems,
        }


def summary(found: list[dict[str, Any]]) -> str:
    """One line for each budget: the points beside the long load."""
    lines = ["| token budget | points, tok/s | long load | points over long |", "|---|---|---|---|"]
    for budget in dict.fromkeys(row["budget"] for row in found):
        points = [row["tok_s"] for row in found if (row["budget"], row["what"]) == (budget, "point")]
        long = [row["tok_s"] for row in found if (row["budget"], row["what"]) == (budget, "long")]
        told = ", ".join(f"{value:,.0f}" for value in points)
        settled, over = (f"{long[0]:,.0f}", f"{fmean(points) / long[0] - 1:+.1%}") if long and points else ("", "")
        lines.append(f"| {budget} | {told} | {settled} | {over} |")
    return "\n".join(lines)


def main() -> None:
    """Parse, boot, load, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm-python", type=Path)
    parser.add_argument("--model", help="a model's folder (default: the demonstration model)")
    parser.add_argument("--flags", type=json.loads, default=CPU_FLAGS, help="JSON object of vllm serve's flags")
    parser.add_argument("--env", type=json.loads, default=CPU_ENV, help="JSON object of environment variables")
    parser.add_argument("--budgets", type=lambda text: [int(n) for n in text.split(",")], default=[160, 192, 256, 2048])
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--input", type=int, default=128)
    parser.add_argument("--output", type=int, default=128)
    parser.add_argument("--points", type=int, default=3)
    parser.add_argument("--window", type=float, default=5.0)
    parser.add_argument("--long", type=float, default=90.0, help="0 leaves the long load out")
    parser.add_argument("--cache", type=Path, help="VLLM_CACHE_ROOT (default: one for this comparison)")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    model = choose_model(options.model)
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        out = stack.enter_context(options.out.open("w", encoding="utf-8")) if options.out else sys.stderr
        folder = Path(scratch)
        spec = EngineSpec(
            install=resolve_install(options.vllm_python),
            model=model.serve,
            config=LaunchConfig.of(options.flags, options.env),
            run_id="turns-benchmark",
            log_path=folder / "engine.log",
            cache_root=options.cache or folder / "cache",
        )
        warm = stack.enter_context(WarmServer(spec, folder / "warm.log"))
        for budget in options.budgets:
            limits = LaunchConfig.of({"max-num-batched-tokens": budget, "max-num-seqs": options.concurrency})
            with boot(replace(spec, config=spec.config.merged(limits)), warm=warm) as engine:
                for row in rows(engine, options, model.vocab_size, budget):
                    found.append(row)
                    print(json.dumps(row), file=out, flush=True)
    print(summary(found))


if __name__ == "__main__":
    main()
