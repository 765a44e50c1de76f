"""Measures the table that `benchmarks/search` replays: a few boots, in each a grid of live limits. Resumable.

    python benchmarks/h200/measure_table.py --model DIR --vocab-size 151936 --flags '{"load-format": "dummy"}' \\
        --cache DIR --out table.jsonl --seconds 1500

Eight boots {weights bf16, fp8} x {KV auto, fp8} x {graphs, eager} by default, each at the largest limits; inside it
every pair of max-num-seqs and max-num-batched-tokens is loaded, every third twice. Rows are appended as they are
measured (format: ``benchmarks/search/table.py``) and never measured again; a run ends with its seconds. A live pair is
written like a boot of its own, with ``how`` = "live": what live limits are worth is the question of `live_limits.py`.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from autotune.engine.boot import boot
from autotune.engine.engine import Engine
from autotune.engine.install import resolve_install
from autotune.engine.live import LiveLimits, set_limits, with_live_limits
from autotune.engine.types import BootFailed, EngineSpec
from autotune.engine.warm import WarmServer
from autotune.load.measure import measure
from autotune.load.types import LoadSpec, Measurement, Target
from autotune.space.config import LaunchConfig
from autotune.workload.load import load_workload

PRECISIONS = {"quantization": ["fp8"], "kv-cache-dtype": ["fp8"], "enforce-eager": [True]}
SEQS, TOKENS = [64, 128, 256, 512, 1024], [1024, 2048, 4096, 8192, 16384]
DEFAULTS = {"max-num-seqs": 1024, "max-num-batched-tokens": 8192}
Flags = dict[str, Any]


def combinations(choices: Mapping[str, Sequence[Any]]) -> list[Flags]:
    """Every choice of a value or nothing for each flag."""
    options = [[{}, *({name: value} for value in values)] for name, values in choices.items()]
    return [{key: value for part in parts for key, value in part.items()} for parts in product(*options)]


def scenario(options: argparse.Namespace) -> dict[str, Any]:
    """The table's first line: the space that it covers."""
    limits = {"max-num-seqs": options.seqs, "max-num-batched-tokens": options.tokens}
    live = [{"name": name, "values": values, "scope": "live", "ordered": True} for name, values in limits.items()]
    fixed = [{"name": name, "values": [None, *values]} for name, values in options.choices.items()]
    return {
        "kind": "scenario",
        "name": options.out.stem,
        "workload": options.workload,
        "concurrency": options.concurrency,
        "parameters": [*live, *fixed],
        "defaults": options.defaults,
    }


class Table:
    """The file: what it holds, and more of it."""

    def __init__(self, path: Path, head: Mapping[str, Any]) -> None:
        self._path = path
        self.rows: list[dict[str, Any]] = []
        if path.exists():
            self.rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        else:
            self.add(dict(head))

    def add(self, row: dict[str, Any]) -> None:
        """Append one row at once, so that a slot's end loses none."""
        self.rows.append(row)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row)[:200], flush=True)

    def loads(self, flags: Flags) -> int:
        """How many good loads of these flags there are."""
        return sum(row["kind"] == "load" and row["flags"] == flags and not row["problems"] for row in self.rows)

    def failed(self, flags: Flags) -> bool:
        """Whether a boot of these flags was seen to fail."""
        return any(row["kind"] == "boot" and row["flags"] == flags and not row["started"] for row in self.rows)


def wanted(options: argparse.Namespace, table: Table, combination: Flags) -> Iterator[tuple[Flags, LiveLimits]]:
    """What is still to be loaded inside one boot: every pair once, then every third again."""
    pairs = [(s, t) for s, t in product(options.seqs, options.tokens) if s <= t]
    for repeat in (1, 2):
        for number, (seqs, tokens) in enumerate(pairs):
            pair = {"max-num-seqs": seqs, "max-num-batched-tokens": tokens}
            flags = {**combination, **{name: n for name, n in pair.items() if options.defaults.get(name) != n}}
            if table.loads(flags) < repeat and (repeat == 1 or number % 3 == 0):
                yield flags, LiveLimits(seqs, tokens)


def one_load(engine: Engine, options: argparse.Namespace, seed: int) -> Measurement:
    """One point on fresh prompts."""
    return measure(
        Target(engine.base_url, engine.model_name),
        load_workload(options.workload),
        LoadSpec.closed(options.concurrency, min_s=options.window, max_s=2 * options.window, precision=0.02),
        seed=seed,
        point_id=f"table-{seed}",
        vocab_size=options.vocab_size,
    )


def load_row(flags: Flags, found: Measurement, seconds: float) -> dict[str, Any]:
    """One load as the table holds it."""
    percentiles = {"itl_p99_ms": found.itl_ms.p99, "ttft_p95_ms": found.ttft_ms.p95, "tpot_p95_ms": found.tpot_ms.p95}
    return {
        "kind": "load",
        "how": "live",
        "flags": flags,
        "boot": 0,
        "value": round(found.output_tokens_per_s.value, 1),
        "metrics": {name: round(value.value, 2) for name, value in percentiles.items() if value},
        "seconds": round(seconds, 1),
        "problems": found.problems,
    }


def fill(table: Table, engine: Engine, options: argparse.Namespace, combination: Flags) -> None:
    """Load what is wanted inside one engine until the time is over."""
    report = engine.report
    compiled_s = report.phases_s.get("compile", 0.0)
    for flags, limits in wanted(options, table, combination):
        began = time.monotonic()
        if began > options.ends:
            return
        set_limits(engine, limits, wait_s=30)
        found = one_load(engine, options, len(table.rows))
        if not table.loads(flags):
            times = {"cold_s": round(report.boot_s, 1), "hot_s": round(report.boot_s - compiled_s, 1)}
            table.add({"kind": "boot", "how": "live", "flags": flags, "started": True, **times})
        table.add(load_row(flags, found, time.monotonic() - began))


def run(table: Table, spec: EngineSpec, options: argparse.Namespace, folder: Path) -> None:
    """Every combination in its own boot."""
    largest = {"max-num-seqs": options.seqs[-1], "max-num-batched-tokens": options.tokens[-1]}
    with WarmServer(spec, folder / "warm.log") as warm:
        for number, combination in enumerate(combinations(options.choices)):
            if table.failed(combination) or time.monotonic() > options.ends:
                continue
            if next(wanted(options, table, combination), None) is None:
                continue
            config = spec.config.merged(LaunchConfig.of({**combination, **largest}))
            own = with_live_limits(replace(spec, config=config, log_path=folder / f"table-{number}.log"))
            try:
                with boot(own, warm=warm) as engine:
                    facts = {"kv_tokens": engine.report.kv_tokens, "phases_s": dict(engine.report.phases_s)}
                    table.add({"kind": "engine", "flags": combination, "boot_s": engine.report.boot_s, **facts})
                    fill(table, engine, options, combination)
            except BootFailed as failed:
                why = {"failure": failed.failure.cls.name, "cold_s": round(failed.boot_s, 1)}
                table.add({"kind": "boot", "flags": combination, "started": False, "margin": 0.0, **why})


def main() -> None:
    """Parse and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm-python", type=Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--vocab-size", type=int, required=True)
    parser.add_argument("--flags", type=json.loads, default={}, help="JSON object of flags that every boot gets")
    parser.add_argument("--env", type=json.loads, default={})
    parser.add_argument("--choices", type=json.loads, default=PRECISIONS, help="JSON: values of each boot flag")
    parser.add_argument("--seqs", type=json.loads, default=SEQS)
    parser.add_argument("--tokens", type=json.loads, default=TOKENS)
    parser.add_argument("--defaults", type=json.loads, default=DEFAULTS, help="JSON: vLLM's own limits there")
    parser.add_argument("--workload", default="batch-512-256")
    parser.add_argument("--concurrency", type=int, default=256)
    parser.add_argument("--window", type=float, default=6.0)
    parser.add_argument("--seconds", type=float, default=1500.0)
    parser.add_argument("--cache", type=Path, required=True, help="VLLM_CACHE_ROOT")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.ends = time.monotonic() + options.seconds
    with tempfile.TemporaryDirectory() as scratch:
        spec = EngineSpec(
            install=resolve_install(options.vllm_python),
            model=options.model,
            config=LaunchConfig.of(options.flags, options.env),
            run_id="measure-table",
            log_path=Path(scratch) / "engine.log",
            cache_root=options.cache,
        )
        run(Table(options.out, scenario(options)), spec, options, Path(scratch))


if __name__ == "__main__":
    main()
