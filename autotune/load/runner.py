"""Runs drivers: one in this process, or several in processes of their own that act as one client.

Times are ``time.perf_counter``, which is the host's monotonic clock: samples of several processes can be laid over
each other. Each process takes its share of the concurrency, or every n-th arrival of the same schedule.
"""

import asyncio
import os
import resource
import selectors
import subprocess
import sys
import time
from collections.abc import Sequence

import numpy as np
import uvloop

from autotune.errors import EnvironmentFault
from autotune.load.driver import TICK_S, Driver
from autotune.load.job import Job
from autotune.load.phases import Controller
from autotune.load.pipes import read_message, write_message
from autotune.load.records import ClientResult, GapHistogram, RequestLog, Sample

START_DELAY_S = 0.2


def run_driver(driver: Driver) -> ClientResult:
    """Run a driver in an event loop of its own."""
    _allow_open_files()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(driver.run())


def run_alone(job: Job, controller: Controller) -> ClientResult:
    """Run a job in this process."""
    driver = Driver(job.target, job.load, job.prompts(), seed=job.seed, on_tick=controller.on_tick)
    controller.log = driver.log
    return run_driver(driver)


def run_fleet(job: Job, controller: Controller) -> ClientResult:
    """Run a job in ``job.load.processes`` processes. Raises EnvironmentFault where one of them dies."""
    fleet = Fleet(job, controller)
    try:
        return fleet.run()
    except (EOFError, BrokenPipeError):
        raise EnvironmentFault("a client process died; its message is above. Try fewer client processes.") from None
    finally:
        fleet.close()


class Fleet:
    """The parent's side of several client processes."""

    def __init__(self, job: Job, controller: Controller) -> None:
        self._job = job
        self._controller = controller
        # With our own search path: `-m` would take a folder named autotune or numpy in the working folder.
        code = f"import sys; sys.path[:] = {sys.path!r}; from autotune.load.worker import main; main()"
        command = [sys.executable, "-P", "-c", code]
        # In groups of their own: Ctrl-C at the terminal is for this process, which ends them.
        self._processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)
            for _ in range(job.load.processes)
        ]
        self._latest: dict[int, Sample] = {}
        self._results: dict[int, ClientResult] = {}

    def run(self) -> ClientResult:
        """Start all at one moment, feed the controller, collect the results."""
        for client, process in enumerate(self._processes):
            assert process.stdin
            write_message(process.stdin, (self._job, client, len(self._processes)))
        for process in self._processes:
            assert process.stdout
            read_message(process.stdout)
        start_at = time.perf_counter() + START_DELAY_S
        self._tell_all(start_at)
        self._watch()
        return merged([self._results[client] for client in range(len(self._processes))])

    def close(self) -> None:
        """End what still runs."""
        for process in self._processes:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue

    def _tell_all(self, message: object) -> None:
        for process in self._processes:
            assert process.stdin
            write_message(process.stdin, message)

    def _watch(self) -> None:
        told, next_tick = False, 0.0
        with selectors.DefaultSelector() as selector:
            for client, process in enumerate(self._processes):
                assert process.stdout
                selector.register(process.stdout, selectors.EVENT_READ, client)
            while len(self._results) < len(self._processes):
                for key, _ in selector.select(timeout=TICK_S):
                    if self._receive(key.data):
                        selector.unregister(key.fileobj)
                now = time.perf_counter()
                ready = len(self._latest) == len(self._processes) and not self._results
                if ready and not told and now >= next_tick:
                    next_tick = now + TICK_S
                    told = self._controller.on_tick(total(list(self._latest.values()), now))
                    if told:
                        self._tell_all("end")

    def _receive(self, client: int) -> bool:
        """Take one message of a client; True where it was its last."""
        pipe = self._processes[client].stdout
        assert pipe
        message = read_message(pipe)
        if isinstance(message, ClientResult):
            self._results[client] = message
            return True
        sample, news = message
        self._latest[client] = sample
        self._controller.log.extend(news)
        return False


def total(samples: Sequence[Sample], at: float) -> Sample:
    """Several clients' latest samples as those of one client."""
    return Sample(
        at=at,
        events=sum(s.events for s in samples),
        first_tokens=sum(s.first_tokens for s in samples),
        sent=sum(s.sent for s in samples),
        ended=sum(s.ended for s in samples),
        failed=sum(s.failed for s in samples),
        in_flight=sum(s.in_flight for s in samples),
        oldest_due=min(s.oldest_due for s in samples),
        loop_lag_s=max(s.loop_lag_s for s in samples),
        cpu_s=sum(s.cpu_s for s in samples),
    )


def merged(results: Sequence[ClientResult]) -> ClientResult:
    """Several clients' results as those of one: their samples are laid over each other by time."""
    start = max(result.samples[0].at for result in results)
    end = min(result.samples[-1].at for result in results)
    grid = np.arange(start, end, TICK_S)
    failures: dict[int, str] = {}
    for result in results:
        failures = {**result.failure_samples, **failures}
    return ClientResult(
        log=RequestLog.merged([result.log for result in results]),
        gaps=GapHistogram.merged([result.gaps for result in results]),
        samples=[total([_sample_at(result.samples, at) for result in results], at) for at in grid.tolist()],
        failure_samples=failures,
        started=min(result.started for result in results),
        exhausted=all(result.exhausted for result in results),
    )


def _sample_at(samples: Sequence[Sample], at: float) -> Sample:
    times = [s.at for s in samples]
    index = int(np.searchsorted(times, at))
    after, before = samples[min(index, len(samples) - 1)], samples[max(0, index - 1)]
    span = after.at - before.at
    share = (at - before.at) / span if span > 0 else 1.0
    return Sample(
        at=at,
        events=round(before.events + share * (after.events - before.events)),
        first_tokens=round(before.first_tokens + share * (after.first_tokens - before.first_tokens)),
        sent=after.sent,
        ended=after.ended,
        failed=after.failed,
        in_flight=after.in_flight,
        oldest_due=after.oldest_due,
        loop_lag_s=after.loop_lag_s,
        cpu_s=before.cpu_s + share * (after.cpu_s - before.cpu_s),
    )


def _allow_open_files() -> None:
    """Raise the soft limit of open files to the hard one: a thousand streams are a thousand sockets."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def processors() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0))
