"""Dies as vLLM dies: the same words from the same process in the same order, and the same exit code."""

import multiprocessing
import os
import signal
import sys
from typing import NoReturn

from vllm.fake.failures import Breakage
from vllm.fake.log import Log, plain, traceback
from vllm.fake.settings import Settings

GIB = 2**30


def describe(settings: Settings, text: str) -> str:
    """Fill a failure's words with this engine's numbers."""
    memory = settings.behaviour.memory
    total = memory.total_bytes
    utilization = settings.flags["gpu-memory-utilization"]
    free = memory.free_bytes if memory.free_bytes is not None else total
    values = {
        "model": settings.model,
        "seqs": settings.max_num_seqs,
        "block_size": settings.block_size,
        "model_len": settings.model_len,
        "needed_gib": settings.model_len * settings.token_bytes / GIB,
        "kv_gib": settings.kv_bytes / GIB,
        "kv_tokens": settings.kv_tokens,
        "total_gib": total / GIB,
        "free_gib": free / GIB,
        "utilization": utilization,
        "wanted_gib": total * utilization / GIB,
        "tried_mib": settings.peak_bytes / 2**20,
    }
    return text.format(**values) if "{" in text else text


def break_api(settings: Settings | None, breakage: Breakage) -> NoReturn:
    """End the API server before its engine exists."""
    text = describe(settings, breakage.text) if settings else breakage.text
    if breakage.process == "argparse":
        plain(f"usage: vllm [-h] [-v]\nvllm{'' if text.startswith('serve') else ':'} {text}")
        sys.exit(2)
    if breakage.process == "kill_api":
        os.kill(os.getpid(), signal.SIGKILL)
    if breakage.process == "exit":
        os._exit(int(text))
    plain("\n".join((*breakage.before, traceback(text))))
    for child in multiprocessing.active_children():
        child.kill()
    sys.exit(1)


def break_core(settings: Settings, breakage: Breakage, log: Log) -> NoReturn:
    """End the engine process."""
    if breakage.process == "kill_api":
        os.kill(os.getppid(), signal.SIGKILL)
        signal.alarm(settings.behaviour.orphan_life_s)
        signal.pause()
    if breakage.process == "kill_core":
        os.kill(os.getpid(), signal.SIGKILL)
    text = describe(settings, breakage.text)
    for line in breakage.before:
        log.error("core.py:1490", line)
    if breakage.process == "worker":
        text = _worker_words(text, log)
    word = "EngineCore encountered a fatal error." if breakage.phase == "serving" else "EngineCore failed to start."
    log.error("core.py:1510", f"{word}\n{traceback(text)}")
    if breakage.process == "worker":
        log.error(
            "multiproc_executor.py:315",
            "Worker proc VllmWorker-0 died unexpectedly (exit code: None), shutting down executor.",
        )
    plain(f"Process EngineCore:\n{traceback(text)}")
    os._exit(1)


def _worker_words(text: str, log: Log) -> str:
    if text == "RuntimeError: cancelled":
        return text
    log.error("multiproc_executor.py:1063", f"WorkerProc hit an exception.\n{traceback(text)}")
    message = text.split(": ", 1)[-1]
    return f"RuntimeError: Worker failed with error '{message}', please check the stack trace above for the root cause"
