"""Scheduler settings and the rules between them."""

from dataclasses import dataclass
from typing import Literal

SchedulerPolicy = Literal["fcfs", "priority"]


@dataclass
class SchedulerConfig:
    """How many requests and tokens one step may hold."""

    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    max_num_active_seqs: int | None = None
    long_prefill_token_threshold: int = 0
    scheduling_policy: SchedulerPolicy = "fcfs"
    enable_chunked_prefill: bool = True
    scheduler_cls: str | None = None
    async_scheduling: bool | None = None
    stream_interval: int = 1
    scheduler_reserve_full_isl: bool = True
    prefill_schedule_interval: int = 1
    max_num_queued_reqs: int | None = None


def problem(batched_tokens: int, seqs: int, model_len: int, chunked: bool) -> str | None:
    """Why the combination is refused, in vLLM's words; None where it is fine."""
    if not chunked and batched_tokens < model_len:
        return (
            f"max_num_batched_tokens ({batched_tokens}) is smaller than max_model_len ({model_len}). "
            "This effectively limits the maximum sequence length."
        )
    if seqs < 1:
        return "Input should be greater than or equal to 1"
    if batched_tokens < seqs:
        return f"max_num_batched_tokens ({batched_tokens}) must be greater than or equal to max_num_seqs ({seqs})."
    return None
