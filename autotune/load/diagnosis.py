"""What limits a configuration, from plain values of the server and the client.

The first rule that fits decides; each says what to change:

    client          the client itself could not keep up: the server was never tested
    kv              requests wait (or are preempted) while the KV cache is full
    seqs            requests wait, the KV cache has room, as many run as the engine may run
    token budget    requests wait though neither KV nor the number of sequences is used up, or steps are
                    full of prompt tokens
    front end       the API server's process is busy with one core while the engine has room
    under-loaded    nothing waits and less runs than could: more load, or nothing, would change the result
"""

from dataclasses import dataclass
from typing import Literal

from autotune.load.checks import SATURATED
from autotune.load.types import Measurement

Limit = Literal["client", "kv", "seqs", "token budget", "front end", "under-loaded", "unclear"]
KV_FULL = 0.95
RUNNING_FULL = 0.95
WAITING_SOME = 0.5
FRONT_END_BUSY = 0.9
STEP_FULL = 0.9


@dataclass(frozen=True, slots=True)
class ServerState:
    """The server during the window: means of gauges, growth of counters. None = not known.

    ``kv_usage`` is a share; ``step_tokens`` the mean tokens per engine step; ``front_end_cpu`` the API
    server's CPU seconds per second.
    """

    running: float
    waiting: float
    kv_usage: float
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    preemptions: int = 0
    step_tokens: float | None = None
    front_end_cpu: float | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The limit, the values that show it, and what to try."""

    limit: Limit
    because: str
    advice: str


def diagnose(measurement: Measurement, server: ServerState) -> Diagnosis:
    """What limited this point."""
    for rule in (_client, _kv, _seqs, _front_end, _token_budget, _under_loaded):
        found = rule(measurement, server)
        if found:
            return found
    return Diagnosis("unclear", _values(server), "compare with a point at another load")


def _client(measurement: Measurement, server: ServerState) -> Diagnosis | None:
    problem = next((p for p in measurement.problems if SATURATED in p), None)
    return Diagnosis("client", problem, "use more client processes") if problem else None


def _kv(measurement: Measurement, server: ServerState) -> Diagnosis | None:
    if server.preemptions == 0 and not (server.kv_usage >= KV_FULL and server.waiting >= WAITING_SOME):
        return None
    because = f"{_values(server)}, {server.preemptions} preemptions"
    return Diagnosis("kv", because, "more KV memory, an fp8 KV cache, a shorter context, or fewer sequences")


def _seqs(measurement: Measurement, server: ServerState) -> Diagnosis | None:
    if not server.max_num_seqs or server.waiting < WAITING_SOME:
        return None
    if server.running < min(RUNNING_FULL * server.max_num_seqs, server.max_num_seqs - 0.5):
        return None
    return Diagnosis("seqs", f"{_values(server)} of max-num-seqs {server.max_num_seqs}", "raise max-num-seqs")


def _front_end(measurement: Measurement, server: ServerState) -> Diagnosis | None:
    if server.front_end_cpu is None or server.front_end_cpu < FRONT_END_BUSY:
        return None
    because = f"the API server uses {server.front_end_cpu:.2f} of a core"
    return Diagnosis("front end", because, "raise api-server-count or stream-interval")


def _token_budget(measurement: Measurement, server: ServerState) -> Diagnosis | None:
    limit = server.max_num_batched_tokens
    full = bool(limit and server.step_tokens and server.step_tokens >= STEP_FULL * limit)
    if not full and server.waiting < WAITING_SOME:
        return None
    steps = f", {server.step_tokens:.0f} tokens a step" if server.step_tokens else ""
    return Diagnosis("token budget", f"{_values(server)}{steps}", "raise max-num-batched-tokens")


def _under_loaded(measurement: Measurement, server: ServerState) -> Diagnosis | None:
    if server.waiting >= WAITING_SOME:
        return None
    return Diagnosis("under-loaded", _values(server), "a higher load would show what the configuration can do")


def _values(server: ServerState) -> str:
    return f"{server.running:.0f} running, {server.waiting:.1f} waiting, KV cache {server.kv_usage:.0%} full"
