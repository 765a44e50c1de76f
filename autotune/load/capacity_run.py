"""``measure_capacity``: the capacity search put to a real server."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from autotune.load.capacity import Capacity, Probe, find_capacity
from autotune.load.measure import measure
from autotune.load.slo import Slo
from autotune.load.stopping import decided, diverging
from autotune.load.types import LoadSpec, Measurement, Target
from autotune.workload.arrivals import Poisson
from autotune.workload.types import Workload

CEILING_CONCURRENCY = 64


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
    stop: Callable[[], str | None] | None = None,
    on_probe: Callable[[Probe], None] | None = None,
) -> Capacity:
    """The highest rate of ``workload`` that meets every SLO on ``target``.

    ``probe_s`` = shortest and longest window of one rate, ``confirm_s`` the longest of a confirmation.
    ``bracket`` may hold an incumbent's (rate that held, rate that did not): the search starts there.
    """
    arrival = workload.arrival or Poisson(1.0)
    tried = 0

    def test(rate_per_s: float, *, confirming: bool) -> Measurement:
        nonlocal tried
        tried += 1
        longest_s = confirm_s if confirming else probe_s[1]
        load = LoadSpec.open(
            arrival.at_rate(rate_per_s), min_s=min(probe_s[0], longest_s), max_s=longest_s, precision=0.0
        )
        return measure(
            target,
            workload,
            load,
            seed=seed,
            point_id=f"{point_id}/rate{tried}",
            vocab_size=vocab_size,
            stop=stop,
            slos=slos,
            rules=(decided(slos, shortest_s=probe_s[0]), diverging(shortest_s=probe_s[0])),
        )

    known = bracket[0] or bracket[1]
    if known:
        return find_capacity(test, slos, ceiling_per_s=known, bracket=bracket, tolerance=tolerance, on_probe=on_probe)
    ceiling = _ceiling(
        target, workload, seed=seed, point_id=point_id, vocab_size=vocab_size, stop=stop, probe_s=probe_s
    )
    if not ceiling.valid:
        return Capacity(None, (None, None), (), problem=ceiling.problems[0])
    rate = ceiling.requests_per_s.value
    return find_capacity(test, slos, ceiling_per_s=rate, tolerance=tolerance, on_probe=on_probe)


def _ceiling(
    target: Target,
    workload: Workload,
    *,
    seed: int,
    point_id: str,
    vocab_size: int | None,
    stop: Callable[[], str | None] | None,
    probe_s: tuple[float, float],
) -> Measurement:
    """Requests per second that a saturated server completes, roughly."""
    load = LoadSpec.closed(CEILING_CONCURRENCY, min_s=probe_s[0] / 2, max_s=probe_s[1] / 2, precision=0.05)
    point = f"{point_id}/ceiling"
    return measure(
        target, replace(workload, arrival=None), load, seed=seed, point_id=point, vocab_size=vocab_size, stop=stop
    )
