"""Measures the table that `benchmarks/search` replays: a few boots, in each a grid of live limits. Resumable.

    python benchmarks/h200/measure_table.py --model DIR --vocab-size 151936 --flags '{"load-format": "dummy"}' \\
        --cache DIR --out table.jsonl --seconds 1500

Eight boots {weights bf16, fp8} x {KV auto, fp8} x {graphs, eager} by default, each at the largest limits; inside it
every pair of max-num-seqs and max-num-batched-tokens is loaded, every third twice. Rows are appended as they are
measured (format: ``benchmarks/search/table.py``) and never measured again; a run ends with its seconds. A live pair is
written like a boot of its own, with ``how`` = "live".

``--plan FILE`` lists a slot's steps instead, done in their order: a JSON list of
``{"flags": {"quantization": "fp8"}, "replicates": 1, "own": [[64, 1024]]}``. ``replicates`` is how often a third of the
live pairs is loaded (the others once), ``own`` the pairs that get an engine of their own as well, with ``how`` = "own":
together they say what live limits are worth.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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


@dataclass(frozen=True, slots=True)
class Step:
    """One combination of boot flags: how often its live pairs are loaded, and which pairs boot for themselves."""

    flags: Flags
    replicates: int = 2
    own: Sequence[Sequence[int]] = ()


def steps(options: argparse.Namespace) -> list[Step]:
    """The plan of this run."""
    if options.plan is None:
        return [Step(flags) for flags in combinations(options.choices)]
    return [Step(**step) for step in json.loads(options.plan.read_text(encoding="utf-8"))]


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

    def loads(self, flags: Flags, how: str) -> int:
        """How many good loads of these flags there are, live or in an engine of their own."""
        wanted = ("load", how, flags)
        return sum((r["kind"], r.get("how"), r.get("flags")) == wanted and not r["problems"] for r in self.rows)

    def failed(self, flags: Flags) -> bool:
        """Whether a boot of these flags was seen to fail."""
        return any(row["kind"] == "boot" and row["flags"] == flags and not row["started"] for row in self.rows)


def limited(options: argparse.Namespace, combination: Flags, limits: LiveLimits) -> Flags:
    """The combination with these limits, as far as they differ from the defaults."""
    pair = {"max-num-seqs": limits.seqs, "max-num-batched-tokens": limits.tokens}
    return {**combination, **{name: n for name, n in pair.items() if options.defaults.get(name) != n}}


def wanted(options: argparse.Namespace, table: Table, step: Step) -> Iterator[tuple[Flags, LiveLimits]]:
    """What is still to be loaded inside one boot: every pair once, then every third again."""
    pairs = [LiveLimits(s, t) for s, t in product(options.seqs, options.tokens) if s <= t]
    for repeat in range(1, step.replicates + 1):
        for number, limits in enumerate(pairs):
            flags = limited(options, step.flags, limits)
            if table.loads(flags, "live") < repeat and (repeat == 1 or number % 3 == 0):
                yield flags, limits


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


def add_load(table: Table, engine: Engine, options: argparse.Namespace, flags: Flags, how: str) -> None:
    """Load the engine as it is and append the row, after the row of its boot where that is the first one."""
    began, report = time.monotonic(), engine.report
    found = one_load(engine, options, len(table.rows))
    if not table.loads(flags, how):
        times = {
            "cold_s": round(report.boot_s, 1),
            "hot_s": round(report.boot_s - report.phases_s.get("compile", 0), 1),
        }
        table.add({"kind": "boot", "how": how, "flags": flags, "started": True, **times})
    percentiles = {"itl_p99_ms": found.itl_ms.p99, "ttft_p95_ms": found.ttft_ms.p95, "tpot_p95_ms": found.tpot_ms.p95}
    table.add(
        {
            "kind": "load",
            "how": how,
            "flags": flags,
            "boot": 0 if how == "live" else 1,
            "value": round(found.output_tokens_per_s.value, 1),
            "metrics": {name: round(value.value, 2) for name, value in percentiles.items() if value},
            "seconds": round(time.monotonic() - began, 1),
            "problems": found.problems,
        }
    )


def fill(table: Table, engine: Engine, options: argparse.Namespace, step: Step) -> None:
    """Load what is wanted inside one engine until the time is over."""
    for flags, limits in wanted(options, table, step):
        if time.monotonic() > options.ends:
            return
        set_limits(engine, limits, wait_s=30)
        add_load(table, engine, options, flags, "live")


class Slot:
    """What boots: one specification, its warm server and the table that it fills."""

    def __init__(self, table: Table, spec: EngineSpec, options: argparse.Namespace, warm: WarmServer) -> None:
        self._table, self._spec, self._options, self._warm = table, spec, options, warm
        self._boots = 0

    def run(self, step: Step) -> None:
        """Live pairs in one engine at the largest limits, then the engines that pairs have for themselves."""
        options, table = self._options, self._table
        if next(wanted(options, table, step), None) is not None:
            largest = LiveLimits(options.seqs[-1], options.tokens[-1])
            self._boot(step.flags, largest, lambda engine: fill(table, engine, options, step))
        for seqs, tokens in step.own:
            limits = LiveLimits(seqs, tokens)
            flags = limited(options, step.flags, limits)
            if not table.loads(flags, "own"):
                self._boot(
                    step.flags, limits, lambda engine, flags=flags: add_load(table, engine, options, flags, "own")
                )

    def _boot(self, combination: Flags, limits: LiveLimits, use: Callable[[Engine], None]) -> None:
        """Boot at these limits and use the engine, or write down why it did not start. Nothing once time is over."""
        if self._table.failed(combination) or time.monotonic() > self._options.ends:
            return
        self._boots += 1
        given = LaunchConfig.of({**combination, "max-num-seqs": limits.seqs, "max-num-batched-tokens": limits.tokens})
        log = self._spec.log_path.with_name(f"table-{self._boots}.log")
        spec = replace(self._spec, config=self._spec.config.merged(given), log_path=log)
        try:
            with boot(with_live_limits(spec), warm=self._warm) as engine:
                report = engine.report
                facts = {"boot_s": report.boot_s, "kv_tokens": report.kv_tokens, "phases_s": dict(report.phases_s)}
                self._table.add({"kind": "engine", "flags": dict(given.flags), **facts})
                use(engine)
        except BootFailed as failed:
            why = {"failure": failed.failure.cls.name, "cold_s": round(failed.boot_s, 1)}
            self._table.add({"kind": "boot", "flags": combination, "started": False, "margin": 0.0, **why})


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
    parser.add_argument("--plan", type=Path, help="JSON list of steps (default: every combination of --choices)")
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
        with WarmServer(with_live_limits(spec), Path(scratch) / "warm.log") as warm:
            slot = Slot(Table(options.out, scenario(options)), spec, options, warm)
            for step in steps(options):
                slot.run(step)


if __name__ == "__main__":
    main()
