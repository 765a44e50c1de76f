"""The chaos test in full: 100 cycles on the stand-in and, with ``--vllm-python``, 10 on real vLLM. Prints the counts.

python benchmarks/chaos/run.py --cycles 100
python benchmarks/chaos/run.py --vllm-python ~/vllm/bin/python --cycles 10 --longest 60
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from chaos_monkey import Chaos, study_command  # noqa: E402
from fake_vllm import make_fake_python  # noqa: E402

from autotune.engine.install import resolve_install  # noqa: E402


def main() -> None:
    """Parse, run, print, and fail where anything went wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=100)
    parser.add_argument("--longest", type=float, default=9.0, help="longest life of a tuner before the kill, in s")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--vllm-python", type=Path, help="a real vLLM's Python (default: the stand-in)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chaos-") as name:
        folder = Path(name)
        python = args.vllm_python or make_fake_python(folder / "venv", {"time_scale": 0.3})
        command = study_command(folder, python.absolute(), f"chaos-{os.getpid()}")
        began = time.monotonic()
        counts = Chaos(folder, command, longest_s=args.longest, seed=args.seed).run(args.cycles)
        kind = "" if args.vllm_python else " (stand-in)"
        print(f"vLLM                {resolve_install(python).version}{kind}, seed {args.seed}")
        print(counts)
        print(f"seconds             {time.monotonic() - began:.0f}")
    sys.exit(0 if counts.clean else 1)


if __name__ == "__main__":
    main()
