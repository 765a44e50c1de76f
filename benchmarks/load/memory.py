"""Memory of the load client over a very long load: resident megabytes as requests go by, up to a million.

64 requests in flight, 16 tokens in, 4 out, against a server that answers at once. Prints a line per tenth and, at the
end, what a request has cost in bytes.

    python benchmarks/load/memory.py [--requests 1000000] [--out FILE.json]
"""

import argparse
import json
import time
from pathlib import Path

import psutil
from client_capacity import server

from autotune.load.measure import measure
from autotune.load.phases import View
from autotune.load.types import LoadSpec, Target
from autotune.workload.lengths import Lengths
from autotune.workload.types import RequestShape, Workload

TINY = Workload("tiny", (RequestShape("x", Lengths.fixed(16), Lengths.fixed(4)),))
MIB = 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    me, rows, began = psutil.Process(), [], time.monotonic()

    def look(view: View) -> str | None:
        ended = len(view.log)
        if ended >= (len(rows) + 1) * args.requests / 10:
            seconds = round(time.monotonic() - began, 1)
            rows.append({"requests": ended, "seconds": seconds, "rss_mib": round(me.memory_info().rss / MIB, 1)})
            print(json.dumps(rows[-1]), flush=True)
        return "that was enough" if ended >= args.requests else None

    with server("--itl-ms", "0", "--burst", "4") as port:
        load = LoadSpec.closed(64, min_s=1, max_s=86_400, precision=0)
        target = Target(f"http://127.0.0.1:{port}", "m")
        found = measure(target, TINY, load, seed=1, point_id="p", vocab_size=4096, rules=[look])
    first, last = rows[0], rows[-1]
    grown = (last["rss_mib"] - first["rss_mib"]) * MIB / (last["requests"] - first["requests"])
    peak = {
        "peak_rss_mib_with_the_summary": round(psutil.Process().memory_info().rss / MIB, 1),
        "bytes_per_request": round(grown, 1),
        "completed": found.counts.completed,
        "failed": found.counts.failed,
        "problems": list(found.problems),
    }
    print(json.dumps(peak))
    if args.out:
        args.out.write_text(json.dumps([*rows, peak], indent=1) + "\n")


if __name__ == "__main__":
    main()
