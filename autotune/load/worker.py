"""One client process of several, started by ``runner.Fleet`` and spoken to through its pipes.

In: a job, later the moment to start, later anything at all = end now. Out: "ready", then at every tick a sample
and the requests that have ended since the last one, at the end the whole ``ClientResult``. Every message
is a pickle behind its length in eight bytes; both ends are this program.
"""

import os
import select
import sys
import time

from autotune.load.driver import Driver
from autotune.load.pipes import read_message, write_message
from autotune.load.records import COLUMNS, Sample
from autotune.load.runner import run_driver


def main() -> None:
    """Serve one job."""
    inbox, outbox = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    job, client, clients = read_message(inbox)
    told = 0

    def on_tick(sample: Sample) -> bool:
        nonlocal told
        news = {name: driver.log[name][told:].copy() for name in COLUMNS}
        told = len(driver.log)
        write_message(outbox, (sample, news))
        return bool(select.select([inbox], [], [], 0)[0])

    driver = Driver(
        job.target, job.load, job.prompts(client, clients), seed=job.seed, on_tick=on_tick, share=(client, clients)
    )
    write_message(outbox, "ready")
    start_at = read_message(inbox)
    time.sleep(max(0.0, start_at - time.perf_counter()))
    write_message(outbox, run_driver(driver))
