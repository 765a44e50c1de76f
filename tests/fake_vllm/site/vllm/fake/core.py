"""The engine process: boots phase by phase, then turns requests into tokens, one step at a time.

It talks to the API server over one connection: in come ``("add", id, prompt, max_tokens)``, ``("abort", ids)`` and
``("reset",)``; out go ``("ready",)``, ``("step", tokens, stats)`` and ``("reset", done)``. When the API server
vanishes it stays, as vLLM's engine process does.
"""

import contextlib
import importlib
import multiprocessing
import os
import random
import signal
import time
from multiprocessing.connection import Connection
from typing import NoReturn

from vllm.fake.behaviour import identity
from vllm.fake.breaking import break_core
from vllm.fake.failures import BREAKAGES
from vllm.fake.language import Model
from vllm.fake.log import Log
from vllm.fake.perf import step_factor, step_s
from vllm.fake.phases import Boot
from vllm.fake.process import set_title, sleep_forever
from vllm.fake.settings import Settings
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Request, Scheduler, SchedulerOutput, config_for

MAKE_UP_S = 0.1


def run_core(conn: Connection, settings: Settings) -> None:
    """Life of the engine process."""
    signal.alarm(settings.behaviour.life_s)
    signal.signal(signal.SIGINT, signal.SIG_IGN if settings.behaviour.orphan else _end)
    signal.signal(signal.SIGTERM, signal.SIG_IGN if settings.behaviour.orphan else _end)
    set_title("VLLM::EngineCore")
    log = Log("EngineCore")
    workers = [_start_worker(rank) for rank in range(settings.behaviour.workers)]
    Boot(settings, log).core()
    Core(conn, settings, log, workers).run()


def _start_worker(rank: int) -> Connection:
    """A worker process; it ends when the returned end of its pipe does, as vLLM's workers do."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    context.Process(target=run_worker, args=(theirs, rank), daemon=True).start()
    theirs.close()
    ours.recv()
    return ours


def run_worker(pipe: Connection, rank: int) -> None:
    """Life of a worker process."""
    set_title(f"VLLM::Worker_TP{rank}")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe.send("up")
    with contextlib.suppress(EOFError):
        pipe.recv()


def _end(number: int, _frame: object) -> NoReturn:
    Log("EngineCore").info(
        "core.py:1454", f"[shutdown] EngineCore: trigger received signal={signal.Signals(number).name}"
    )
    os._exit(0)


class Core:
    """The loop of steps. ``made`` counts all tokens that were ever generated."""

    def __init__(self, conn: Connection, settings: Settings, log: Log, workers: list[Connection]) -> None:
        self.workers = workers
        self.conn = conn
        self.settings = settings
        self.behaviour = settings.behaviour
        self.log = log
        self.made = 0
        self.scheduler = _scheduler(settings)
        self.model = Model(settings.vocab, self.behaviour.precision_noise, self.behaviour.garbage)
        self.random = random.Random(f"{self.behaviour.seed} {identity(settings.flags)}")
        boot_luck = self.random.lognormvariate(0, self.behaviour.boot_noise)
        self.factor = step_factor(self.behaviour.perf, settings.flags) * boot_luck * self.behaviour.time_scale

    def run(self) -> NoReturn:
        """Serve until ended."""
        self.conn.send(("ready",))
        end = time.monotonic()
        while True:
            if not self.scheduler.has_requests():
                self._receive()
                end = time.monotonic()
            self._receive()
            step = self.scheduler.schedule()
            # A step that ended late is made up for, so that a busy machine does not change the throughput.
            end = max(end, time.monotonic() - MAKE_UP_S) + self._cost(step)
            time.sleep(max(0.0, end - time.monotonic()))
            self._send(("step", self._produce(step), self._stats(step)))
            self._misbehave()

    def _receive(self) -> None:
        try:
            while self.conn.poll(None if not self.scheduler.has_requests() else 0):
                self._handle(self.conn.recv())
        except (EOFError, OSError):
            self._stay()

    def _handle(self, message: tuple[object, ...]) -> None:
        match message:
            case ("add", str(id), list(prompt), int(max_tokens)):
                self.scheduler.add_request(Request(id, prompt, max_tokens, last=prompt[-1]))
            case ("abort", list(ids)):
                self.scheduler.finish(ids)
            case ("reset",):
                self._send(("reset", self.scheduler.reset_prefix_cache()))

    def _send(self, message: tuple[object, ...]) -> None:
        try:
            self.conn.send(message)
        except OSError:
            self._stay()

    def _stay(self) -> NoReturn:
        signal.alarm(self.behaviour.orphan_life_s)
        sleep_forever()

    def _cost(self, step: SchedulerOutput) -> float:
        luck = self.random.lognormvariate(0, self.behaviour.step_noise)
        return luck * step_s(self.behaviour.perf, self.factor, len(step.decoding), step.prompt_tokens)

    def _produce(self, step: SchedulerOutput) -> list[tuple[str, int, str | None, int]]:
        """Tokens of the step, as (request, token, finish reason, cached prompt tokens)."""
        first = [request for request, _ in step.prefills if request.read >= request.target]
        out = [self._token(request) for request in step.decoding + first]
        self.made += len(out)
        self.scheduler.finish([id for id, _, reason, _ in out if reason])
        return out

    def _token(self, request: Request) -> tuple[str, int, str | None, int]:
        request.last = self.model.greedy(request.last)
        request.made += 1
        done = "length" if request.made >= request.max_tokens else None
        return request.id, request.last, done, request.hit

    def _stats(self, step: SchedulerOutput) -> dict[str, float]:
        scheduler = self.scheduler
        return {
            "running": len(scheduler.running),
            "waiting": len(scheduler.waiting),
            "kv_usage": scheduler.used / max(1, scheduler.blocks),
            "preemptions": scheduler.preemptions,
            "queries": scheduler.queries,
            "hits": scheduler.hits,
            "step_tokens": len(step.decoding) + step.prompt_tokens,
        }

    def _misbehave(self) -> None:
        hang = self.behaviour.hang_after_tokens
        if hang is not None and self.made >= hang:
            sleep_forever()
        name = self.behaviour.fail
        if name and BREAKAGES[name].phase == "serving" and self.made >= self.behaviour.fail_after_tokens:
            break_core(self.settings, BREAKAGES[name], self.log)


def _scheduler(settings: Settings) -> Scheduler:
    path = settings.flags.get("scheduler-cls")
    cls: type[Scheduler] = AsyncScheduler
    if path:
        module, _, name = str(path).rpartition(".")
        cls = getattr(importlib.import_module(module), name)
    config = config_for(
        min(settings.max_num_seqs, settings.flags["max-num-active-seqs"] or settings.max_num_seqs),
        settings.max_num_batched_tokens,
        settings.block_size,
        settings.kv_tokens // settings.block_size,
        bool(settings.flags["enable-prefix-caching"]),
    )
    return cls(vllm_config=config, log_stats=True)
