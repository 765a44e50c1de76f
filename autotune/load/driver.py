"""Drives one client: keeps the load up, writes down what comes back, tells a controller how it goes.

Closed loop: ``concurrency`` requests are in flight; the moment one ends the next is sent, in the same call. A few
bodies are built ahead, while the server works, so that a slot is not idle for as long as a prompt takes to make.
The first wave starts at evenly spread ages (part of each answer moved into its prompt), so that the load
begins in its steady state instead of marching in step.

Open loop: the next body is built ahead, a timer fires up to a millisecond early (event-loop timers are
that coarse) and the loop then turns until the request is due.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np

from autotune.load.body import PATHS, BodyBuilder
from autotune.load.client import Counters, Exchange, Pool
from autotune.load.endpoint import Endpoint
from autotune.load.records import ClientResult, Outcome, RequestLog, Sample
from autotune.load.types import LoadSpec, Target
from autotune.workload.arrivals import Arrival
from autotune.workload.lengths import stratified
from autotune.workload.prompts import PlannedRequest, PromptStream

TICK_S = 0.05
SWEEP_S = 0.5
TIMER_S = 0.001
MOST_READY = 16

OnTick = Callable[[Sample], bool]


class Driver:
    """One client's run against one target. ``run`` returns when ``on_tick`` says True, or the trace ends.

    ``share`` = (i, n): this is client i of n that share the load.
    """

    def __init__(
        self,
        target: Target,
        load: LoadSpec,
        prompts: PromptStream,
        *,
        seed: int,
        on_tick: OnTick,
        share: tuple[int, int] = (0, 1),
    ) -> None:
        self._load = load
        self._client, self._clients = share
        self._prompts = prompts
        self._rng = np.random.default_rng(seed)
        self._on_tick = on_tick
        self._bodies = BodyBuilder(target, prompts.workload)
        self._endpoint = Endpoint.of(target, PATHS[prompts.workload.kind])
        self._counters = Counters()
        self._in_flight: dict[int, Exchange] = {}
        self._ready: deque[Exchange] = deque()
        self._result = ClientResult(RequestLog(), self._counters.gaps)
        self._sent = self._failed = 0
        self._over = False

    @property
    def log(self) -> RequestLog:
        """Requests that have ended so far."""
        return self._result.log

    async def run(self) -> ClientResult:
        """Load the target until the controller ends it; what is in flight then is cut."""
        self._loop = asyncio.get_running_loop()
        self._finished = self._loop.create_future()
        self._pool = Pool(self._endpoint, self._counters, self._on_done, self._loop)
        self._result.started = time.perf_counter()
        if self._load.concurrency:
            self._start_closed(self._load.concurrency)
        elif self._load.arrival:
            self._start_open(self._load.arrival)
        self._next_tick = self._result.started + TICK_S
        self._next_sweep = self._result.started + SWEEP_S
        self._loop.call_later(TICK_S, self._tick)
        try:
            await self._finished
        finally:
            self._end()
        return self._result

    def _start_closed(self, concurrency: int) -> None:
        ages = stratified(self._rng, concurrency)[self._client :: self._clients]
        for planned in self._prompts.first_wave([float(age) for age in ages]):
            self._send(self._exchange(planned, time.perf_counter()))
        self._loop.call_soon(self._build_ahead)

    def _build_ahead(self) -> None:
        """One body a turn of the loop, so that what arrives meanwhile waits for one at most."""
        if self._over or len(self._ready) >= min(self._load.concurrency or 0, MOST_READY):
            return
        self._ready.append(self._exchange(self._prompts.next(), 0.0))
        self._loop.call_soon(self._build_ahead)

    def _start_open(self, arrival: Arrival) -> None:
        every = (float(due) for block in arrival.times(self._rng) for due in block)
        self._due_times = islice(every, self._client, None, self._clients)
        self._queue_next()

    def _queue_next(self) -> None:
        due_s = next(self._due_times, None)
        if due_s is None:
            self._result.exhausted = True
            return
        exchange = self._exchange(self._prompts.next(), self._result.started + due_s)
        self._wait_for(exchange)

    def _wait_for(self, exchange: Exchange) -> None:
        left_s = exchange.due - time.perf_counter()
        if self._over:
            return
        if left_s <= 0:
            self._send(exchange)
            self._loop.call_soon(self._queue_next)
        elif left_s > TIMER_S:
            self._loop.call_later(left_s - TIMER_S, self._wait_for, exchange)
        else:
            self._loop.call_soon(self._wait_for, exchange)

    def _send_next(self, due: float) -> None:
        exchange = self._ready.popleft() if self._ready else self._exchange(self._prompts.next(), due)
        exchange.due = due
        self._send(exchange)
        self._loop.call_soon(self._build_ahead)

    def _exchange(self, planned: PlannedRequest, due: float) -> Exchange:
        expected = planned.output_tokens if self._prompts.workload.ignore_eos else 0
        return Exchange(self._bodies.build(planned), due, expected, planned.prompt_tokens, planned.partial)

    def _send(self, exchange: Exchange) -> None:
        self._sent += 1
        self._in_flight[id(exchange)] = exchange
        self._pool.send(exchange)

    def _on_done(self, exchange: Exchange) -> None:
        if self._in_flight.pop(id(exchange), None) is None:
            return
        self._write(exchange)
        if self._load.concurrency and not self._over:
            self._replace(exchange)

    def _replace(self, exchange: Exchange) -> None:
        if exchange.outcome in (Outcome.OK, Outcome.SHORT):
            self._send_next(exchange.ended)
        else:
            self._loop.call_later(0.1, self._resume)

    def _resume(self) -> None:
        if not self._over:
            self._send_next(time.perf_counter())

    def _write(self, exchange: Exchange) -> None:
        outcome = exchange.scanner.outcome
        if exchange.outcome > Outcome.CUT:
            self._failed += 1
            self._result.failure_samples.setdefault(exchange.outcome, exchange.detail)
        self._result.log.add(
            (
                exchange.due,
                exchange.sent,
                exchange.first,
                exchange.last,
                exchange.ended,
                exchange.prompt_tokens if outcome.prompt_tokens is None else outcome.prompt_tokens,
                exchange.events if outcome.completion_tokens is None else outcome.completion_tokens,
                -1 if outcome.cached_tokens is None else outcome.cached_tokens,
                exchange.events,
                exchange.outcome,
                exchange.partial,
            )
        )

    def _tick(self) -> None:
        now = time.perf_counter()
        sample = self._sample(now)
        self._result.samples.append(sample)
        if now >= self._next_sweep:
            self._sweep(now)
        drained = self._result.exhausted and not self._in_flight
        if self._on_tick(sample) or drained:
            if not self._finished.done():
                self._finished.set_result(None)
            return
        self._next_tick = max(self._next_tick + TICK_S, now)
        self._loop.call_later(max(0.0, self._next_tick - now), self._tick)

    def _sample(self, now: float) -> Sample:
        oldest = next(iter(self._in_flight.values()), None)
        return Sample(
            at=now,
            events=self._counters.events,
            first_tokens=self._counters.first_tokens,
            sent=self._sent,
            ended=len(self._result.log),
            failed=self._failed,
            in_flight=len(self._in_flight),
            oldest_due=oldest.due if oldest else float("inf"),
            loop_lag_s=max(0.0, now - self._next_tick),
            cpu_s=time.process_time(),
        )

    def _sweep(self, now: float) -> None:
        """Fold the gaps, and end the requests that are past a deadline."""
        self._next_sweep = now + SWEEP_S
        self._counters.gaps.fold(now)
        for exchange, why in list(self._late(now)):
            self._cancel(exchange, Outcome.TIMEOUT, why)

    def _late(self, now: float) -> Iterator[tuple[Exchange, str]]:
        load = self._load
        for exchange in self._in_flight.values():
            if now - exchange.sent > load.request_timeout_s:
                yield exchange, f"no end after {load.request_timeout_s:g} s"
            elif exchange.events and now - exchange.last > load.stall_timeout_s:
                yield exchange, f"stalled: {exchange.events} events, then none for {load.stall_timeout_s:g} s"

    def _cancel(self, exchange: Exchange, outcome: Outcome, why: str) -> None:
        if exchange.connection:
            exchange.connection.fail(outcome, why)
        else:
            exchange.outcome, exchange.detail, exchange.ended = outcome, why, time.perf_counter()
            self._on_done(exchange)

    def _end(self) -> None:
        self._over = True
        for exchange in list(self._in_flight.values()):
            self._cancel(exchange, Outcome.CUT, "")
        self._pool.close()
        self._counters.gaps.fold(time.perf_counter())
        self._result.gaps = self._counters.gaps
