"""Predicted KV tokens against measured ones, for every good boot of a `measure_table.py`.

    python benchmarks/h200/kv_predicted.py MODEL_FOLDER SLOT_FOLDER [--memory-mib 143771] [--vllm 0.26.0]

The slot's folder holds ``table.jsonl`` and ``logs/table-N.log.gz``, N counting its engines. The first guess is that
before anything was booted; the second knows what the boots above it printed.
"""

import argparse
import gzip
import json
from pathlib import Path

from autotune.engine.failures import diagnose
from autotune.engine.memory import MemoryModel
from autotune.engine.model_shape import read_model_shape
from autotune.space.config import LaunchConfig

MODEL_LENGTH = 768


def main() -> None:
    """Parse, predict boot by boot, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("slot", type=Path)
    parser.add_argument("--memory-mib", type=int, default=143_771, help="the GPU's memory as nvidia-smi tells it")
    parser.add_argument("--vllm", default="0.26.0")
    parser.add_argument("--max-model-len", type=int, default=MODEL_LENGTH)
    options = parser.parse_args()
    total = options.memory_mib << 20
    first = learned = MemoryModel("m", options.vllm, read_model_shape(options.model))
    rows = [json.loads(line) for line in (options.slot / "table.jsonl").read_text(encoding="utf-8").splitlines()]
    print("| flags | measured KV tokens | first guess | after the boots above |\n|---|---|---|---|")
    for number, row in enumerate((row for row in rows if row["kind"] == "engine"), start=1):
        config = LaunchConfig.of({**row["flags"], "max-model-len": options.max_model_len})
        cells = []
        for model in (first, learned):
            tokens = model.predict(config, total_bytes=total).kv_tokens
            cells.append(f"{tokens:,} ({tokens / row['kv_tokens'] - 1:+.2%})" if tokens else "none")
        flags = " ".join(f"{name}={value}" for name, value in row["flags"].items())
        print(f"| {flags} | {row['kv_tokens']:,} | {' | '.join(cells)} |")
        log = gzip.decompress((options.slot / "logs" / f"table-{number}.log.gz").read_bytes())
        learned = learned.calibrated(diagnose([log]).facts, config, total_bytes=total)


if __name__ == "__main__":
    main()
