"""A measurement with every field filled, for tests of what is made of one."""

from dataclasses import replace
from typing import Any

from autotune.load.types import Client, Counts, Estimate, FullRun, Latency, Measurement, PrefixHits, Totals

NOTHING = Latency(0, 0.0)


def blank_measurement(**changes: Any) -> Measurement:
    """One that says next to nothing, with ``changes``."""
    blank = Measurement(
        workload="w",
        load="l",
        point_id="p",
        seed=0,
        output_tokens_per_s=Estimate(1.0),
        total_tokens_per_s=Estimate(1.0),
        requests_per_s=Estimate(1.0),
        ttft_ms=NOTHING,
        tpot_ms=NOTHING,
        itl_ms=NOTHING,
        e2el_ms=NOTHING,
        warmup_s=1.0,
        window_s=10.0,
        full_run=FullRun(10.0, 1.0, 1.0),
        counts=Counts(10, 10, 0, 0, 0, 10),
        totals=Totals(1, 1, 0, 0),
        client=Client(1, 1, 0, 0, 0, 0, 1, 0),
        prefix_hits=PrefixHits(0.0),
    )
    return replace(blank, **changes)
