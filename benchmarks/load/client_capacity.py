"""How many tokens per second one client process takes: ours, and ``vllm bench serve`` beside it.

Paced: 256 streams, one token per read every 20 ms; counts tokens per CPU-second of the client.
Saturated: 64 streams as fast as one server process sends (eight tokens a write, else it is the bottleneck);
counts tokens per second, one process each.
The server has a core of its own, the client another; every check of the client is on.

    python benchmarks/load/client_capacity.py [--vllm /path/to/vllm] [--rounds 3] [--out FILE.json]
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

HERE = Path(__file__).parent
PROMPT, ANSWER = 256, 128


@contextmanager
def server(*options: str) -> Iterator[int]:
    """A token server on core 0; its port."""
    with tempfile.TemporaryDirectory() as folder:
        port_file = Path(folder) / "port"
        process = subprocess.Popen(
            ["taskset", "-c", "0", sys.executable, HERE / "token_server.py", port_file, *options]
        )
        try:
            while not port_file.exists():
                time.sleep(0.05)
            yield int(port_file.read_text())
        finally:
            process.kill()
            process.wait()


def ours(port: int, concurrency: int) -> dict[str, float]:
    """One measurement with our client in this process."""
    from autotune.load.measure import measure
    from autotune.load.types import LoadSpec, Target
    from autotune.workload.lengths import Lengths
    from autotune.workload.types import RequestShape, Workload

    shape = RequestShape("x", Lengths.fixed(PROMPT), Lengths.fixed(ANSWER))
    load = LoadSpec.closed(concurrency, min_s=6, max_s=6, precision=0)
    m = measure(
        Target(f"http://127.0.0.1:{port}", "m"),
        Workload("x", (shape,)),
        load,
        seed=time.time_ns(),
        point_id="p",
        vocab_size=4096,
    )
    rate = m.output_tokens_per_s.value
    return {"tokens_per_s": rate, "cpu_share": m.client.cpu_share, "tokens_per_cpu_s": rate / m.client.cpu_share}


def vllms(vllm: str, port: int, concurrency: int, prompts: int) -> dict[str, float]:
    """One run of ``vllm bench serve``; CPU seconds include its start, so they are not stated."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            "taskset", "-c", "1", vllm, "bench", "serve", "--backend", "openai",
            "--base-url", f"http://127.0.0.1:{port}",
            "--model", "m", "--tokenizer", tokenizer(folder),
            "--dataset-name", "random", "--random-input-len", str(PROMPT),
            "--random-output-len", str(ANSWER), "--num-prompts", str(prompts), "--max-concurrency", str(concurrency),
            "--ignore-eos", "--save-result", "--result-dir", folder, "--result-filename", "r.json", "--disable-tqdm",
        ]  # fmt: skip
        env = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
        subprocess.run(command, check=True, env=env, stdout=subprocess.DEVNULL)
        found = json.loads((Path(folder) / "r.json").read_text())
    return {"tokens_per_s": found["output_throughput"], "duration_s": found["duration"], "failed": found["failed"]}


def tokenizer(folder: str) -> str:
    """The tokenizer of the demonstration model: ``vllm bench serve`` needs one to make its prompts."""
    from autotune.engine.demo_model import write_demo_model

    return str(write_demo_model(Path(folder) / "model"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm", help="the vllm command to compare with")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    os.sched_setaffinity(0, {1})
    rows: list[dict[str, object]] = []

    def note(kind: str, who: str, figures: dict[str, float]) -> None:
        rows.append({"load": kind, "client": who, "loadavg": os.getloadavg()[0], **figures})
        print(json.dumps(rows[-1]), flush=True)

    for _ in range(args.rounds):
        with server("--itl-ms", "20") as port:
            note("paced", "autotune", ours(port, 256))
            if args.vllm:
                note("paced", "vllm bench serve", vllms(args.vllm, port, 256, 2048))
        with server("--itl-ms", "0", "--burst", "8") as port:
            note("saturated", "autotune", ours(port, 64))
            if args.vllm:
                note("saturated", "vllm bench serve", vllms(args.vllm, port, 64, 4000))
    for kind in ("paced", "saturated"):
        for who in ("autotune", "vllm bench serve"):
            found = [row for row in rows if row["load"] == kind and row["client"] == who]
            if found:
                print(kind, who, "median tokens/s", round(median(float(str(r["tokens_per_s"])) for r in found)))
    print("peak memory, MB:", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
    if args.out:
        args.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
