"""Continuous batching in small: which requests run in a step, what the KV cache holds, who is preempted.

Each step spends ``max_num_scheduled_tokens``: one token for every request that decodes, the rest on prompts. A request
is admitted while fewer than ``max_num_running_reqs`` run and its whole prompt fits into the KV cache. When the cache
cannot take the next token of a running request, the one admitted last goes back to the queue and starts again.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

PREFIX_CACHE_BLOCKS = 1 << 16


@dataclass
class Request:
    """One request inside the engine; ``read`` counts tokens whose keys and values are there."""

    id: str
    prompt: list[int]
    max_tokens: int
    last: int = 0
    made: int = 0
    read: int = 0
    hit: int = 0
    held: int = 0
    preemptions: int = 0

    @property
    def target(self) -> int:
        """Tokens that must be read before the next one can be made."""
        return len(self.prompt) + self.made


@dataclass
class SchedulerOutput:
    """One step: who decodes, and how much of which prompt is read."""

    decoding: list[Request] = field(default_factory=list)
    prefills: list[tuple[Request, int]] = field(default_factory=list)

    @property
    def prompt_tokens(self) -> int:
        """Prompt tokens of the step."""
        return sum(count for _, count in self.prefills)


class Scheduler:
    """Decides each step. ``max_num_running_reqs`` and ``max_num_scheduled_tokens`` may be lowered by a subclass."""

    def __init__(self, vllm_config: Any, *_args: Any, **_kwargs: Any) -> None:
        self.vllm_config = vllm_config
        self.max_num_running_reqs: int = vllm_config.scheduler_config.max_num_seqs
        self.max_num_scheduled_tokens: int = vllm_config.scheduler_config.max_num_batched_tokens
        self.block_size: int = vllm_config.cache_config.block_size
        self.blocks: int = vllm_config.cache_config.num_gpu_blocks
        self.caching: bool = vllm_config.cache_config.enable_prefix_caching
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.used = 0
        self.preemptions = 0
        self.queries = 0
        self.hits = 0
        self._known: OrderedDict[int, None] = OrderedDict()

    def add_request(self, request: Request) -> None:
        """Queue a new request."""
        self.waiting.append(request)

    def has_requests(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.running or self.waiting)

    def get_num_unfinished_requests(self) -> int:
        """Requests that run or wait."""
        return len(self.running) + len(self.waiting)

    def schedule(self) -> SchedulerOutput:
        """Choose one step and take its memory."""
        step = SchedulerOutput()
        budget = self.max_num_scheduled_tokens
        for request in list(self.running):
            if request not in self.running or budget <= 0:
                continue
            budget -= self._advance(request, step, budget)
        while self.waiting and budget > 0 and len(self.running) < self.max_num_running_reqs:
            request = self.waiting[0]
            if not self._grow(request, request.target):
                break
            self.running.append(self.waiting.popleft())
            self._start(request)
            budget -= self._advance(request, step, budget)
        return step

    def finish(self, request_ids: Iterable[str]) -> None:
        """Forget requests, wherever they are, and give their memory back."""
        gone = set(request_ids)
        for request in [r for r in self.running if r.id in gone]:
            self._release(request)
            self.running.remove(request)
        self.waiting = deque(r for r in self.waiting if r.id not in gone)

    def reset_prefix_cache(self) -> bool:
        """Forget all cached prefixes; refused while requests hold memory."""
        if self.running:
            return False
        self._known.clear()
        return True

    def _advance(self, request: Request, step: SchedulerOutput, budget: int) -> int:
        missing = request.target - request.read
        if request.made and missing == 1:
            if not self._grow_or_preempt(request):
                return 0
            request.read += 1
            step.decoding.append(request)
            return 1
        count = min(missing, budget)
        step.prefills.append((request, count))
        request.read += count
        return count

    def _start(self, request: Request) -> None:
        request.read = 0
        if not self.caching:
            return
        full = len(request.prompt) // self.block_size
        keys, key = [], 0
        for index in range(full):
            key = hash((key, tuple(request.prompt[index * self.block_size : (index + 1) * self.block_size])))
            keys.append(key)
        hit = next((i for i, k in enumerate(keys) if k not in self._known), full)
        self.queries += len(request.prompt)
        request.hit = min(hit * self.block_size, len(request.prompt) - 1)
        self.hits += request.hit
        request.read = request.hit
        self._known.update(dict.fromkeys(keys))
        while len(self._known) > PREFIX_CACHE_BLOCKS:
            self._known.popitem(last=False)

    def _grow_or_preempt(self, request: Request) -> bool:
        while not self._grow(request, request.target):
            victim = self.running[-1]
            self._preempt(victim)
            if victim is request:
                return False
        return True

    def _grow(self, request: Request, tokens: int) -> bool:
        wanted = -(-tokens // self.block_size) - request.held
        if self.used + wanted > self.blocks:
            return False
        self.used += max(0, wanted)
        request.held += max(0, wanted)
        return True

    def _preempt(self, request: Request) -> None:
        self._release(request)
        self.running.remove(request)
        request.read = 0
        request.preemptions += 1
        self.preemptions += 1
        self.waiting.appendleft(request)

    def _release(self, request: Request) -> None:
        self.used -= request.held
        request.held = 0


def config_for(seqs: int, batched: int, block_size: int, blocks: int, caching: bool) -> SimpleNamespace:
    """The part of vLLM's configuration that a scheduler reads."""
    return SimpleNamespace(
        scheduler_config=SimpleNamespace(max_num_seqs=seqs, max_num_batched_tokens=batched, async_scheduling=True),
        cache_config=SimpleNamespace(block_size=block_size, num_gpu_blocks=blocks, enable_prefix_caching=caching),
    )
