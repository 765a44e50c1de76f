"""How precisions of one model answer on real vLLM: the numbers behind README's quality section.

    python benchmarks/quality/precisions.py --model DIR --vllm-python PYTHON --out results.json

Boots the model as published and each precision in turn (warm boots), compares each with the reference, repeats the
reference against itself ``--repeats`` times on a part of the texts, and writes every figure as JSON.
"""

import argparse
import json
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path

from autotune.engine.boot import boot
from autotune.engine.effect import Effect, without_effect
from autotune.engine.install import resolve_install
from autotune.engine.types import BootFailed, EngineSpec
from autotune.engine.warm import WarmServer
from autotune.quality.ask import QualityUnavailable, Server, read, tokenize
from autotune.quality.compare import compare
from autotune.quality.levels import LEVELS, judge
from autotune.quality.reading import Prompts, Reading
from autotune.quality.texts import load_texts
from autotune.space.config import LaunchConfig

FIXED = LaunchConfig.of(
    {
        "distributed-executor-backend": "uni",
        "kv-cache-memory-bytes": "1G",
        "enforce-eager": True,
        "max-model-len": 2048,
    },
    {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_HOST_IP": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"},
)
PRECISIONS = (
    {},
    {"kv-cache-dtype": "fp8"},
    {"kv-cache-dtype": "fp8_e5m2"},
    {"kv-cache-dtype": "int8_per_token_head"},
    {"kv-cache-dtype": "int4_per_token_head"},
    {"quantization": "int8_per_channel_weight_only"},
    {"dtype": "float32"},
    {"quantization": "fp8_per_channel"},
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--vllm-python", required=True, type=Path)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--repeats", type=int, default=0)
    parser.add_argument("--variant", nargs="*", default=[], help="other checkpoints of the model")
    parser.add_argument("--only", nargs="*", help="flag=value, instead of all")
    given = parser.parse_args()
    chosen = [{}, *(dict([word.split("=")]) for word in given.only)] if given.only else list(PRECISIONS)
    chosen += [{"model": path} for path in given.variant]
    with tempfile.TemporaryDirectory() as folder:
        measure(given, chosen, Path(folder))


def measure(given: argparse.Namespace, chosen: list[dict[str, str]], folder: Path):
    spec = EngineSpec(
        install=resolve_install(given.vllm_python),
        model=given.model,
        config=FIXED,
        run_id=f"quality-{time.time_ns()}",
        log_path=folder / "first.log",
        cache_root=folder / "cache",
    )
    results: list[dict[str, object]] = []
    state: dict[str, object] = {}
    with WarmServer(spec, folder / "warm.log") as warm:
        warm.wait_ready()
        for number, flags in enumerate(chosen):
            config = FIXED.merged(LaunchConfig.of(flags)).without("model")
            model = flags.get("model", given.model)
            one = replace(spec, config=config, model=model, log_path=folder / f"{number}.log")
            started = time.monotonic()
            try:
                with boot(one, warm=warm) as engine:
                    boot_s = time.monotonic() - started
                    found = look(
                        Server(engine.base_url, engine.model_name), flags, Effect.of(engine.report), state, given
                    )
            except (BootFailed, QualityUnavailable) as error:
                found, boot_s = {"failure": str(error)[:300]}, time.monotonic() - started
            results.append({"flags": flags, "boot_s": boot_s, "total_s": time.monotonic() - started, **found})
            given.out.write_text(json.dumps(results, indent=1) + "\n")
            print(json.dumps(results[-1]), flush=True)


def look(
    server: Server, flags: dict[str, str], effect: Effect, state: dict[str, object], given: argparse.Namespace
) -> dict[str, object]:
    if not flags:
        prompts = tokenize(server, load_texts())
        reference, again = read(server, prompts), read(server, prompts)
        state |= {"reference": reference, "effect": effect}
        return {
            "seconds": [reference.seconds, again.seconds],
            "effect": asdict(effect),
            "comparison": compare(reference, again).to_json(),
            "repeats": repeats(server, prompts, given.repeats),
        }
    reference, plain = state["reference"], state["effect"]
    assert isinstance(reference, Reading) and isinstance(plain, Effect)
    reading = read(server, reference.prompts)
    found = compare(reference, reading)
    return {
        "seconds": reading.seconds,
        "effect": asdict(effect),
        "without_effect": without_effect(flags, effect, plain),
        "comparison": found.to_json(),
        "judgements": {name: asdict(judge(found, level)) for name, level in LEVELS.items()},
    }


def repeats(server: Server, prompts: Prompts, count: int) -> dict[str, object]:
    """The reference against itself: how often each level would refuse it, judged as the guard does."""
    part = Prompts(prompts.passages[::4], prompts.openings[::4])
    first = read(server, part)
    noise = compare(first, read(server, part))
    found = [compare(first, read(server, part)) for _ in range(count)]
    refused = {name: sum(judge(f, level, noise).verdict != "within" for f in found) for name, level in LEVELS.items()}
    return {"count": count, "refused": refused, "largest_kl": max((f.kl.value for f in found), default=0.0)}


if __name__ == "__main__":
    main()
