"""``measure``: put one load on one server and return one Measurement. Synchronous; runs its own event loop.

The caller reads the server's counters before and after, and asks ``checks.check_counts`` whether they agree:
this room knows HTTP and statistics, not the server's metrics.
"""

import asyncio
import resource
from collections.abc import Callable, Sequence

import uvloop

from autotune.load.driver import Driver
from autotune.load.phases import Controller, Progress, Rule
from autotune.load.records import ClientResult
from autotune.load.summary import summarise
from autotune.load.types import LoadSpec, Measurement, Target
from autotune.workload.prompts import PromptStream
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
    on_progress: Callable[[Progress], None] | None = None,
) -> Measurement:
    """Load ``target`` as ``load`` says and measure.

    ``seed`` and ``point_id`` choose the prompts: equal values give equal prompts, other values prompts that
    no cache has seen. ``vocab_size`` None sends text instead of token ids. ``stop`` is asked 20 times a
    second; a reason ends the load and makes the measurement invalid. ``rules`` may end the window early.
    """
    _allow_open_files()
    prompts = PromptStream(workload, seed=seed, point_id=point_id, vocab_size=vocab_size, avoid=avoid_ids)
    controller = Controller(load, stop=stop, rules=rules, on_progress=on_progress)
    driver = Driver(target, load, prompts, seed=seed, on_tick=controller.on_tick)
    result = run_driver(driver)
    controller.finish(result.samples[-1].at if result.samples else result.started)
    return summarise(result, controller, workload, load, seed=seed, point_id=point_id)


def run_driver(driver: Driver) -> ClientResult:
    """Run a driver in an event loop of its own."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(driver.run())


def _allow_open_files() -> None:
    """Raise the soft limit of open files to the hard one: a thousand streams are a thousand sockets."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
