"""A neighbour that takes the GPU's memory but a little: at once, or at a moment of another engine's boot.

    python3 neighbour.py LEAVE_MIB [LOG PATTERN]

Takes GPU 0's free memory but LEAVE_MIB with plain allocations (once PATTERN stands in the file LOG), says so, and
holds it until it is ended. Needs only torch. With it a boot runs out of memory in a phase of our choosing.
"""

import sys
import time
from pathlib import Path

import torch

CHUNKS = [2 << 30, 256 << 20, 16 << 20]


def wait_for(log: Path, pattern: str) -> None:
    """Return once the log has the pattern."""
    while not log.exists() or pattern not in log.read_text(errors="replace"):
        time.sleep(0.02)


def main() -> None:
    """Wait, take, hold."""
    leave = int(sys.argv[1]) << 20
    torch.zeros(1, device="cuda")
    if len(sys.argv) > 2:
        wait_for(Path(sys.argv[2]), sys.argv[3])
    held = []
    for size in CHUNKS:
        while torch.cuda.mem_get_info()[0] > leave + size:
            held.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
    print(
        f"took {sum(map(torch.numel, held)) >> 20} MiB, {torch.cuda.mem_get_info()[0] >> 20} MiB are free", flush=True
    )
    time.sleep(600)


if __name__ == "__main__":
    main()
