"""What stands between an engine and its roofline: loads that leave one part out at a time.

    python benchmarks/h200/gap.py --model DIR --vocab-size 151936 --flags '{…}' --cache DIR --out gap.jsonl

One engine answers the whole mix, prompts alone (one token each) and answers alone (a short prompt), the last at several
concurrencies; a second one, equal but for ``stream-interval``, answers the mix and answers alone with almost no work
for the front end. Every load is printed as one JSON object.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from autotune.engine.boot import boot
from autotune.engine.engine import Engine
from autotune.engine.install import resolve_install
from autotune.engine.types import EngineSpec
from autotune.engine.warm import WarmServer
from autotune.load.measure import measure
from autotune.load.types import LoadSpec, Target
from autotune.space.config import LaunchConfig
from autotune.workload.lengths import Lengths
from autotune.workload.types import RequestShape, Workload

STREAM_INTERVAL = 64
MIX, PROMPTS, ANSWERS = ("mix", 512, 256), ("prompts", 512, 1), ("answers", 16, 256)
FIRST = [(MIX, 256), (PROMPTS, 256), (ANSWERS, 256), (ANSWERS, 128), (ANSWERS, 512), (MIX, 512)]
SECOND = [(MIX, 256), (ANSWERS, 256)]


def one_load(
    engine: Engine, shape: tuple[str, int, int], concurrency: int, seed: int, vocab_size: int
) -> dict[str, Any]:
    """One load and its figures; requests a second, tokens a second, latencies in ms."""
    name, prompt, answer = shape
    found = measure(
        Target(engine.base_url, engine.model_name),
        Workload(name, (RequestShape(name, Lengths.fixed(prompt), Lengths.fixed(answer)),)),
        LoadSpec.closed(concurrency, min_s=6.0, max_s=10.0, precision=0.01),
        seed=seed,
        point_id=f"gap-{seed}",
        vocab_size=vocab_size,
    )
    return {
        "load": name,
        "concurrency": concurrency,
        "requests_s": round(found.requests_per_s.value, 3),
        "output_tok_s": round(found.output_tokens_per_s.value, 1),
        "ttft_mean_ms": round(found.ttft_ms.mean, 2),
        "tpot_mean_ms": round(found.tpot_ms.mean, 3),
        "itl_p50_ms": found.itl_ms.p50 and round(found.itl_ms.p50.value, 2),
        "itl_p99_ms": found.itl_ms.p99 and round(found.itl_ms.p99.value, 2),
        "window_s": round(found.window_s, 2),
        "completed": found.counts.completed,
        "problems": found.problems,
    }


def rows(spec: EngineSpec, folder: Path, vocab_size: int) -> Iterator[dict[str, Any]]:
    """The loads of both engines."""
    slow_stream = replace(spec, config=spec.config.merged(LaunchConfig.of({"stream-interval": STREAM_INTERVAL})))
    with WarmServer(spec, folder / "warm.log") as warm:
        for number, (engine_spec, loads) in enumerate([(spec, FIRST), (slow_stream, SECOND)]):
            named = replace(engine_spec, log_path=folder / f"gap-{number}.log")
            with boot(named, warm=warm) as engine:
                yield {
                    "boot_s": engine.report.boot_s,
                    "phases_s": engine.report.phases_s,
                    "kv": engine.report.kv_tokens,
                }
                for at, (shape, concurrency) in enumerate(loads):
                    row = one_load(engine, shape, concurrency, 100 * number + at, vocab_size)
                    yield {"stream_interval": STREAM_INTERVAL if number else 1, **row}


def main() -> None:
    """Parse, load, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm-python", type=Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--vocab-size", type=int, required=True)
    parser.add_argument("--flags", type=json.loads, default={})
    parser.add_argument("--env", type=json.loads, default={})
    parser.add_argument("--cache", type=Path, required=True, help="VLLM_CACHE_ROOT")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, args.out.open("w", encoding="utf-8") as out:
        folder = Path(scratch)
        spec = EngineSpec(
            install=resolve_install(args.vllm_python),
            model=args.model,
            config=LaunchConfig.of(args.flags, args.env),
            run_id="roofline-gap",
            log_path=folder / "engine.log",
            cache_root=args.cache,
        )
        for row in rows(spec, folder, args.vocab_size):
            line = json.dumps(row)
            print(line, file=sys.stderr, flush=True)
            out.write(line + "\n")


if __name__ == "__main__":
    main()
