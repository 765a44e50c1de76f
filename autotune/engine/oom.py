"""Out of memory is nine failures: which one, and by how much.

The remedy depends on what the engine was doing. The functions in the traceback say it best; where the
log has none, the lines that the boot had printed so far do:

    before the weights are loaded        oom_weights
    then, before the KV cache is sized   oom_activation
    then, before the graphs are captured oom_graph        (oom_warmup in eager mode)
    then, before the server is ready     oom_warmup
    then                                 oom_runtime

Three are the environment's fault: more memory was free than was asked for (``oom_suspect``: seen under WSL),
a device that was full before anything was loaded (``not_enough_free_memory``), and memory that another process
took since (``oom_neighbour``).
"""

import re

from autotune.engine.causes import Cause
from autotune.engine.logs import GIB, BootPhase
from autotune.engine.margins import MarginBytes, memory_bytes

_WANTED = re.compile(r"Tried to allocate ([\d.]+) ?([KMGT]i?B)", re.IGNORECASE)
_TOTAL = re.compile(r"total capacity of ([\d.]+) ?([KMGT]i?B)", re.IGNORECASE)
_OTHERS = re.compile(r"Process \d+ has ([\d.]+) ?([KMGT]i?B) memory in use", re.IGNORECASE)
_OWN = "this process has"
_FREE = re.compile(r"([\d.]+) ?([KMGT]i?B|bytes) (?:is )?free\b", re.IGNORECASE)

# Functions of vLLM that only run while one kind of memory is being taken; innermost work first.
_BY_FUNCTION = (
    ("oom_sampler", re.compile(r":_dummy_(sampler|pooler)_run$")),
    ("oom_graph", re.compile(r":(_?capture_\w+|profile_cudagraph_memory|capture_(begin|end)|_capture_cudagraphs)$")),
    ("oom_kv_cache", re.compile(r":_?allocate_kv_cache\w*$")),
    ("oom_warmup", re.compile(r":(initialize_kv_cache\w*|kernel_warmup|initialize_from_config)$")),
    ("oom_activation", re.compile(r":(profile_run|determine_available_memory|determine_num_available_blocks)$")),
    ("oom_weights", re.compile(r":(load_model|load_weights|process_weights_after_loading|get_model)$")),
    ("oom_warmup", re.compile(r":compile_or_warm_up_model$")),
    ("oom_runtime", re.compile(r":(run_busy_loop|_process_engine_step|step_with_batch_queue|step_async|engine_step)$")),
)


def oom_class(cause: Cause, *, ready: bool, eager: bool, baseline_free_bytes: int | None) -> str:
    """The name of the class of an out-of-memory error; ``baseline_free_bytes`` were free before the engine started."""
    if baseline_free_bytes is not None and _taken_by_others(cause.message, baseline_free_bytes):
        return "oom_neighbour"
    margin = oom_margin(cause.message)
    if margin and margin.available >= 2 * margin.needed and margin.available - margin.needed >= GIB:
        return "oom_suspect"
    if ready:
        return "oom_runtime"
    return _by_frames(cause) or _by_progress(cause, eager=eager)


def _taken_by_others(message: str, baseline_free_bytes: int) -> bool:
    """Whether other processes took, since ``baseline_free_bytes`` were free, what the allocation lacked.

    Where the message does not name the engine's own share, the process that it names may be the engine.
    """
    margin, total = oom_margin(message), _TOTAL.search(message)
    if not margin or not total or _OWN not in message:
        return False
    held_before = max(0, memory_bytes(*total.groups()) - baseline_free_bytes)
    taken = sum(memory_bytes(*found) for found in _OTHERS.findall(message)) - held_before
    return taken >= max(GIB, margin.needed - margin.available)


def oom_margin(message: str) -> MarginBytes | None:
    """What was asked for and what was free, where the message says both."""
    wanted, free = _WANTED.search(message), _FREE.search(message)
    if not wanted or not free:
        return None
    return MarginBytes(memory_bytes(*wanted.groups()), memory_bytes(*free.groups()))


def _by_frames(cause: Cause) -> str | None:
    for name, function in _BY_FUNCTION:
        if any(function.search(frame) for frame in cause.frames):
            return name
    return None


def _by_progress(cause: Cause, *, eager: bool) -> str:
    if not cause.weights_done:
        return _before_weights(cause)
    if not cause.kv_sized:
        return "oom_activation"
    return "oom_warmup" if cause.graphs_done or eager or cause.phase is BootPhase.SERVER else "oom_graph"


def _before_weights(cause: Cause) -> str:
    if "fatal error" in cause.report or "background task" in cause.report:
        return "oom_runtime"
    is_context = cause.phase is BootPhase.CONFIG and not _WANTED.search(cause.message)
    return "not_enough_free_memory" if is_context else "oom_weights"
