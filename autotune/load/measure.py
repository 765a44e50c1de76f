"""``measure``: put one load on one server and return one Measurement. Synchronous; runs its own event loop.

The caller reads the server's counters before and after, and asks ``checks.check_counts`` whether they agree:
this room knows HTTP and statistics, not the server's metrics.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from autotune.load.checks import SATURATED
from autotune.load.job import Job
from autotune.load.phases import Controller, Progress, Rule
from autotune.load.records import ClientResult
from autotune.load.runner import processors, run_alone, run_fleet
from autotune.load.slo import Slo
from autotune.load.summary import summarise
from autotune.load.text_scale import text_scale
from autotune.load.types import AUTO_PROCESSES, LoadSpec, Measurement, Target
from autotune.workload.prompts import TextScale
from autotune.workload.types import Workload


def measure(
    target: Target,
    workload: Workload,
    load: LoadSpec,
    *,
    seed: int,
    point_id: str,
    vocab_size: int | None,
    avoid_ids: frozenset[int] = frozenset(),
    stop: Callable[[], str | None] | None = None,
    rules: Sequence[Rule] = (),
    slos: Sequence[Slo] = (),
    on_progress: Callable[[Progress], None] | None = None,
    on_result: Callable[[ClientResult], None] | None = None,
) -> Measurement:
    """Load ``target`` as ``load`` says and measure.

    ``seed`` and ``point_id`` choose the prompts: equal values give equal prompts, other values prompts that
    no cache has seen. ``vocab_size`` None sends text instead of token ids. ``stop`` is asked 20 times a
    second; a reason ends the load and makes the measurement invalid. ``rules`` may end the window early.
    ``on_result`` gets what the client wrote down, request by request.
    Where ``load.processes`` is ``AUTO_PROCESSES`` and the client was saturated, the load is repeated with
    twice the client processes, on fresh prompts.
    """

    as_text = (vocab_size is None or workload.kind == "chat") and not workload.requests
    text = text_scale(target, workload, seed=seed) if as_text else TextScale()

    def once(processes: int) -> Measurement:
        spec = replace(load, processes=processes)
        fresh_id = point_id if processes == 1 else f"{point_id}/{processes}"
        job = Job(target, workload, spec, seed, fresh_id, vocab_size, avoid_ids, text)
        controller = Controller(spec, stop=stop, rules=rules, on_progress=on_progress)
        result = run_alone(job, controller) if processes == 1 else run_fleet(job, controller)
        if on_result:
            on_result(result)
        controller.finish(result.samples[-1].at if result.samples else result.started)
        return summarise(result, controller, workload, spec, seed=seed, point_id=point_id, slos=slos)

    if load.processes != AUTO_PROCESSES:
        return once(load.processes)
    processes, measurement = 1, once(1)
    while 2 * processes < processors() and any(SATURATED in problem for problem in measurement.problems):
        processes *= 2
        measurement = once(processes)
    return measurement
