"""``measure_capacity``: the capacity search put to a real server."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from autotune.load.capacity import Capacity, Probe, find_capacity
from autotune.load.measure import measure
from autotune.load.phases import Rule
from autotune.load.slo import LOOK_Z, Slo
from autotune.load.stopping import GROWTH_S, decided, diverging
from autotune.load.types import LoadSpec, Measurement, Target
from autotune.workload.arrivals import Poisson
from autotune.workload.types import Workload

CEILING_CONCURRENCY = 64
# Chance arrivals keep the token rate moving, so that a warm-up rarely ends by itself.
SHORTEST_WARMUP_S = 4.0
# A queue that grows shows in a latency only after about as long as that latency is.
WINDOW_OF_LIMIT = 3.0
# What a probe lets pass is confirmed: it may be surer than not with 50 requests where a confirmation needs 130.
PROBE_Z = 1.64


class Take(Protocol):
    """Takes one point, as ``load.measure.measure`` does; a caller may add checks of its own."""

    def __call__(
        self,
        target: Target,
        workload: Workload,
        load: LoadSpec,
        /,
        *,
        seed: int,
        point_id: str,
        vocab_size: int | None,
        stop: Callable[[], str | None] | None = None,
        rules: Sequence[Rule] = (),
        slos: Sequence[Slo] = (),
    ) -> Measurement: ...


def measure_capacity(
    target: Target,
    workload: Workload,
    slos: Sequence[Slo],
    *,
    seed: int,
    point_id: str,
    vocab_size: int | None,
    bracket: tuple[float | None, float | None] = (None, None),
    probe_s: tuple[float, float] = (8.0, 40.0),
    confirm_s: float = 60.0,
    tolerance: float = 0.05,
    processes: int = 1,
    lag_limit_ms: float = 5.0,
    stop: Callable[[], str | None] | None = None,
    on_probe: Callable[[Probe], None] | None = None,
    take: Take = measure,
) -> Capacity:
    """The highest rate of ``workload`` that meets every SLO on ``target``.

    ``probe_s`` = shortest and longest window of one rate, ``confirm_s`` the longest of a confirmation; they are
    stretched where an SLO's limit is so long that a growing queue would not show in them.
    ``bracket`` may hold an incumbent's (rate that held, rate that did not): the search starts there.
    ``take`` takes each point.
    """
    arrival = workload.arrival or Poisson(1.0)
    shortest_s = max(probe_s[0], *(WINDOW_OF_LIMIT * slo.limit_ms / 1000 for slo in slos))
    stretch = shortest_s / probe_s[0]
    tried = 0

    def test(rate_per_s: float, *, confirming: bool) -> Measurement:
        nonlocal tried
        tried += 1
        longest_s = max(confirm_s, stretch * probe_s[1]) if confirming else stretch * probe_s[1]
        load = LoadSpec.open(
            arrival.at_rate(rate_per_s),
            min_s=min(shortest_s, longest_s),
            max_s=longest_s,
            warmup_max_s=max(SHORTEST_WARMUP_S, 2 * probe_s[0]),
            precision=0.0,
            processes=processes,
            lag_limit_ms=lag_limit_ms,
        )
        return take(
            target,
            workload,
            load,
            seed=seed,
            point_id=f"{point_id}/rate{tried}",
            vocab_size=vocab_size,
            stop=stop,
            slos=slos,
            rules=(
                decided(slos, shortest_s=shortest_s, horizon_s=longest_s, z=LOOK_Z if confirming else PROBE_Z),
                diverging(shortest_s=max(shortest_s, GROWTH_S)),
            ),
        )

    known = bracket[0] or bracket[1]
    if known:
        return find_capacity(test, slos, ceiling_per_s=known, bracket=bracket, tolerance=tolerance, on_probe=on_probe)
    load = LoadSpec.closed(
        CEILING_CONCURRENCY, min_s=probe_s[0] / 2, max_s=probe_s[1] / 2, precision=0.05, processes=processes
    )
    ceiling = take(
        target,
        replace(workload, arrival=None),
        load,
        seed=seed,
        point_id=f"{point_id}/ceiling",
        vocab_size=vocab_size,
        stop=stop,
    )
    if not ceiling.valid:
        return Capacity(None, (None, None), (), problem=ceiling.problems[0])
    rate = ceiling.requests_per_s.value
    return find_capacity(test, slos, ceiling_per_s=rate, tolerance=tolerance, on_probe=on_probe)
