"""Do live points rank settings as own boots do? Real vLLM, both ways, over several settings of seqs and tokens.

    python benchmarks/search/live_limits.py --vllm-python ~/vllm/bin/python --out results/live_limits.jsonl
    python benchmarks/search/live_limits.py --model DIR --flags '{"load-format": "dummy"}' --env '{}' \\
        --workload batch-512-256 --concurrency 256 --settings 1024x8192,512x2048,128x2048

One engine is booted at the largest limits and lowered live; every setting gets an engine of its own as well. Loads
have fresh prompts. Printed: both throughputs, their rank correlation (Spearman), and how many requests were lost: sent,
but neither completed nor cut when the load ended.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from scipy.stats import spearmanr

from autotune.engine.boot import boot
from autotune.engine.engine import Engine
from autotune.engine.install import resolve_install
from autotune.engine.live import LiveLimits, set_limits, with_live_limits
from autotune.engine.types import EngineSpec
from autotune.engine.warm import WarmServer
from autotune.load.measure import measure
from autotune.load.types import LoadSpec, Target
from autotune.space.config import LaunchConfig
from autotune.tuner.models import choose_model
from autotune.workload.load import load_workload

Setting = tuple[int, int]
SETTINGS: list[Setting] = [(1, 2048), (2, 2048), (4, 2048), (8, 2048), (32, 2048), (32, 32)]
CPU_FLAGS = {
    "enforce-eager": True,
    "distributed-executor-backend": "uni",
    "kv-cache-memory-bytes": "256M",
    "max-model-len": 512,
}
CPU_ENV = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}


@dataclass(frozen=True)
class Loads:
    """What every engine is loaded with, how often and how long."""

    workload: str
    concurrency: int
    window_s: float
    repeats: int
    vocab_size: int | None


def load(engine: Engine, seed: int, loads: Loads) -> dict[str, Any]:
    """One load: tokens per second, and what became of its requests."""
    before = engine.metrics()
    found = measure(
        Target(engine.base_url, engine.model_name),
        load_workload(loads.workload),
        LoadSpec.closed(loads.concurrency, min_s=loads.window_s, max_s=2 * loads.window_s, precision=0.03),
        seed=seed,
        point_id=f"live-{seed}",
        vocab_size=loads.vocab_size,
    )
    counts = found.counts
    lost = counts.sent - counts.completed - counts.cut
    return {
        "tok_s": round(found.output_tokens_per_s.value, 1),
        "sent": counts.sent,
        "failed": counts.failed,
        "short": counts.short,
        "lost": lost,
        "pending_after": engine.metrics().pending,
        "generated": engine.metrics().generation_tokens - before.generation_tokens,
    }


def limited(spec: EngineSpec, seqs: int, tokens: int, folder: Path) -> EngineSpec:
    """The spec with these limits of its own."""
    config = spec.config.merged(LaunchConfig.of({"max-num-seqs": seqs, "max-num-batched-tokens": tokens}))
    return replace(spec, config=config, log_path=folder / f"{seqs}-{tokens}.log")


def rows(spec: EngineSpec, folder: Path, settings: Sequence[Setting], loads: Loads) -> Iterator[dict[str, Any]]:
    """All loads, live and in own boots, setting by setting so that drift hits both alike.

    Two engines are up at once, of which one is idle: on a GPU give each half of the memory.
    """
    top = (max(seqs for seqs, _ in settings), max(tokens for _, tokens in settings))
    live_spec = with_live_limits(replace(limited(spec, *top, folder), log_path=folder / "live.log"))
    with ExitStack() as stack:
        warm = stack.enter_context(WarmServer(live_spec, folder / "warm.log"))
        live = stack.enter_context(boot(live_spec, warm=warm))
        for number, (seqs, tokens) in enumerate(settings):
            seeds = [1000 + 10 * number + i for i in range(2 * loads.repeats)]
            applied = set_limits(live, LiveLimits(seqs, tokens), wait_s=30)
            for seed in seeds[: loads.repeats]:
                yield {"how": "live", "seqs": applied.seqs, "tokens": applied.tokens, **load(live, seed, loads)}
            with boot(with_live_limits(limited(spec, seqs, tokens, folder)), warm=warm) as own:
                for seed in seeds[loads.repeats :]:
                    yield {"how": "own", "seqs": seqs, "tokens": tokens, **load(own, seed, loads)}


def summary(found: list[dict[str, Any]], settings: Sequence[Setting]) -> str:
    """A table, the rank correlation and the live points' error."""
    lines = ["| seqs, tokens | live tok/s | own boot tok/s | live over own |", "|---|---|---|---|"]
    means: dict[str, list[float]] = {"live": [], "own": []}
    for seqs, tokens in settings:
        cells = []
        for how in ("live", "own"):
            values = [r["tok_s"] for r in found if (r["how"], r["seqs"], r["tokens"]) == (how, seqs, tokens)]
            means[how].append(fmean(values))
            cells.append(", ".join(f"{value:,.0f}" for value in values))
        lines.append(
            f"| {seqs}, {tokens} | {cells[0]} | {cells[1]} | {means['live'][-1] / means['own'][-1] - 1:+.1%} |"
        )
    rank = float(spearmanr(means["live"], means["own"]).statistic)
    lost = sum(r["lost"] + r["short"] for r in found)
    sent = sum(r["sent"] for r in found)
    return "\n".join([*lines, "", f"Spearman {rank:.3f}; {lost} of {sent} requests lost, failed or short."])


def settings_of(text: str) -> list[Setting]:
    """``512x2048,128x2048`` as pairs of seqs and tokens."""
    return [(int(seqs), int(tokens)) for seqs, tokens in (pair.split("x") for pair in text.split(","))]


def main() -> None:
    """Parse, load both ways, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm-python", type=Path)
    parser.add_argument("--model", help="a model's folder (default: the demonstration model)")
    parser.add_argument("--flags", type=json.loads, default=CPU_FLAGS, help="JSON object of vllm serve's flags")
    parser.add_argument("--env", type=json.loads, default=CPU_ENV, help="JSON object of environment variables")
    parser.add_argument("--settings", type=settings_of, default=SETTINGS, metavar="SEQSxTOKENS,…")
    parser.add_argument("--workload", default="demo")
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--loads", type=int, default=2)
    parser.add_argument("--window", type=float, default=3.0)
    parser.add_argument("--cache", type=Path, help="VLLM_CACHE_ROOT (default: one for this comparison)")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    model = choose_model(options.model)
    loads = Loads(options.workload, options.concurrency, options.window, options.loads, model.vocab_size)
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        out = stack.enter_context(options.out.open("w", encoding="utf-8")) if options.out else sys.stderr
        folder = Path(scratch)
        spec = EngineSpec(
            install=resolve_install(options.vllm_python),
            model=model.serve,
            config=LaunchConfig.of(options.flags, options.env),
            run_id="live-limits-benchmark",
            log_path=folder / "engine.log",
            cache_root=options.cache or folder / "cache",
        )
        found = []
        for row in rows(spec, folder, options.settings, loads):
            found.append(row)
            print(json.dumps(row), file=out, flush=True)
    print(summary(found, options.settings))


if __name__ == "__main__":
    main()
