"""When a closed loop is measured, on an engine that is simulated step by step: chunked prefill, continuous batching.

All slots start at once, so that the engine digests their prompts first. A small token budget spreads that over many
seconds at a rate that looks steady and is not what the loop settles at.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from autotune.load.phases import Controller
from autotune.load.records import Sample
from autotune.load.stopping import clearly_worse
from autotune.load.types import LoadSpec
from autotune.workload.lengths import stratified
from autotune.workload.load import load_workload
from autotune.workload.prompts import PlannedRequest, PromptStream

SLOTS = 256
TICK_S = 0.05
STEP_S, PROMPT_TOKEN_S, ANSWER_TOKEN_S = 0.012, 4.0e-5, 8.0e-5
LOOP = LoadSpec.closed(SLOTS, min_s=10, max_s=20, precision=0.03)


@dataclass(slots=True)
class Request:
    """Tokens of the prompt and of the answer that are still to come."""

    prompt: int
    answer: int


class Engine:
    """vLLM's scheduler in short: running answers first, then prompts in their order, up to ``budget`` tokens a step."""

    def __init__(self, budget: int, seqs: int) -> None:
        self._budget, self._seqs = budget, seqs
        self._waiting: deque[Request] = deque()
        self._running: list[Request] = []
        self.at = 100.0
        self.tokens = self.begun = self.ended = 0

    def submit(self, planned: PlannedRequest) -> None:
        self._waiting.append(Request(planned.prompt_tokens, planned.output_tokens))

    def step(self) -> int:
        """One step; how many requests ended."""
        answering = [request for request in self._running if not request.prompt][: self._budget]
        left = room = self._budget - len(answering)
        self.at += STEP_S + ANSWER_TOKEN_S * len(answering)
        while left and (request := self._next_prompt()):
            digested = min(left, request.prompt)
            request.prompt -= digested
            left -= digested
            if not request.prompt:
                self.begun += 1
                answering.append(request)
        self.at += PROMPT_TOKEN_S * (room - left)
        for request in answering:
            request.answer -= 1
        self.tokens += len(answering)
        gone = sum(not request.answer for request in answering)
        self._running = [request for request in self._running if request.answer]
        self.ended += gone
        return gone

    def _next_prompt(self) -> Request | None:
        """The one prompt that is partly digested, or the next that waits for a slot."""
        if self._running and self._running[-1].prompt:
            return self._running[-1]
        if not self._waiting or len(self._running) >= self._seqs:
            return None
        self._running.append(self._waiting.popleft())
        return self._running[-1]


class Loop:
    """A closed loop on an engine."""

    def __init__(self, budget: int, *, seqs: int = 1024, workload: str = "batch-512-256", seed: int = 0) -> None:
        self.engine = Engine(budget, seqs)
        self._prompts = PromptStream(load_workload(workload), seed=seed, point_id="p", vocab_size=100)
        for planned in self._prompts.first_wave(list(stratified(np.random.default_rng(seed), SLOTS))):
            self.engine.submit(planned)

    def step(self) -> None:
        for _ in range(self.engine.step()):
            self.engine.submit(self._prompts.next())

    def samples(self) -> Iterator[Sample]:
        """What the client sees at every tick."""
        engine, tick = self.engine, self.engine.at
        while True:
            while engine.at <= tick:
                self.step()
            sent = SLOTS + engine.ended
            yield Sample(tick, engine.tokens, engine.begun, sent, engine.ended, 0, SLOTS, tick - 1, 0.0, 0.0)
            tick += TICK_S

    def rate_over(self, turns: int) -> float:
        """Tokens per second from now on, over whole turns."""
        engine = self.engine
        at, tokens, until = engine.at, engine.tokens, engine.ended + turns * SLOTS
        while engine.ended < until:
            self.step()
        return (engine.tokens - tokens) / (engine.at - at)


def measured(loop: Loop, controller: Controller) -> float:
    """Tokens per second of the window."""
    for sample in loop.samples():
        if controller.on_tick(sample):
            break
    window = [sample for sample in controller.samples if sample.at >= (controller.window_start or np.inf)]
    return (window[-1].events - window[0].events) / (window[-1].at - window[0].at)


@pytest.mark.parametrize("seqs", [64, 1024])
@pytest.mark.parametrize("budget", [1024, 2048, 8192])
def test_the_rate_is_that_of_the_loop_for_every_token_budget(budget: int, seqs: int) -> None:
    loop, controller = Loop(budget, seqs=seqs), Controller(LOOP)
    rate = measured(loop, controller)
    assert controller.settled
    assert rate == pytest.approx(loop.rate_over(turns=4), rel=0.02)


def test_the_window_holds_whole_turns() -> None:
    controller = Controller(LOOP)
    measured(Loop(1024), controller)
    assert controller.stopped == "1 turn of the loop; one more would not fit into 20 s"


def test_answers_of_many_lengths_start_as_they_run() -> None:
    """The mean over seeds: one window of so many lengths is not exact."""
    errors = []
    for seed in range(6):
        loop = Loop(8192, workload="chat", seed=seed)
        errors.append(measured(loop, Controller(LOOP)) / loop.rate_over(turns=4) - 1)
    assert abs(float(np.mean(errors))) < 0.02


def test_a_part_of_a_turn_does_not_make_a_configuration_worse() -> None:
    truth = Loop(1024).rate_over(turns=8)
    near = Controller(LOOP, rules=[clearly_worse(1.03 * truth)])
    measured(Loop(1024), near)
    assert not near.by_rule
    far = Controller(LOOP, rules=[clearly_worse(1.8 * truth)])
    measured(Loop(1024), far)
    assert far.by_rule
