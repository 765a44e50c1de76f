"""Makes vLLM logs for tests: the boot of a GPU engine up to some point, and the ways a failure is reported.

The shapes follow vLLM 0.10 to 0.33: prefixes per process, one header per line of a traceback, the chain
worker → engine core → API server, and the noise that torch and NCCL add while it all comes down.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

LOGS = Path(__file__).parent / "logs"
STAGES = ("imports", "config", "weights", "compile", "profile", "graphs", "server", "ready", "serving")
_PIDS = {"APIServer": 101, "EngineCore": 202, "Worker": 303, "Worker_TP0": 303, "Worker_TP1": 304}


def line(process: str, text: str, *, level: str = "INFO", clock: str = "09:05:00", source: str = "core.py:1510") -> str:
    """One line with vLLM's header."""
    return f"({process} pid={_PIDS[process]}) {level} 11-30 {clock} [{source}] {text}"


def boot(until: str) -> list[str]:
    """The start of a GPU boot: all stages before ``until``, and the lines that begin it."""
    stages = (LOGS / "gpu_boot.log").read_text().split("### ")[1 : STAGES.index(until) + 2]
    return [text for stage in stages for text in stage.splitlines()[1:]]


def traceback(error: str, frames: tuple[str, ...] = (), file: str = "/v/vllm/v1/worker/gpu_worker.py") -> list[str]:
    """A traceback without prefixes; ``frames`` are function names."""
    lines = ["Traceback (most recent call last):"]
    for number, name in enumerate(frames):
        lines += [f'  File "{file}", line {number + 10}, in {name}', f"    x = {name}()"]
    return [*lines, *error.split("\n")]


def error_of(raised: list[str]) -> str:
    """The first line of the message of a traceback."""
    return next(text for text in raised[1:] if not text.startswith(" "))


def errors(process: str, lines: list[str], source: str = "core.py:1510") -> list[str]:
    """Lines as vLLM logs a traceback: each with its own header."""
    return [line(process, text, level="ERROR", source=source) for text in lines]


CORE_FAILED = traceback(
    "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': 1}"
)
NCCL_NOISE = (
    "[rank0]:[W1130 09:05:01.104000000 ProcessGroupNCCL.cpp:1250] Warning: process group has NOT been destroyed "
    "before we destruct ProcessGroupNCCL. On normal program exit, the application should call destroy_process_group",
    "/usr/lib/python3.12/multiprocessing/resource_tracker.py:254: UserWarning: resource_tracker: There appear to be 1 "
    "leaked shared_memory objects to clean up at shutdown",
)


def worker_fails(raised: list[str], process: str = "Worker") -> list[str]:
    """A worker raises while booting; everybody else reports it."""
    last = error_of(raised).split(": ", 1)[-1]
    quote = f"RuntimeError: Worker failed with error '{last}', please check the stack trace above for the root cause"
    return [
        *errors(process, ["WorkerProc hit an exception.", *raised], "multiproc_executor.py:1063"),
        *errors("EngineCore", ["EngineCore failed to start.", *traceback(quote)]),
        line(
            "EngineCore",
            "Worker proc VllmWorker-0 died unexpectedly (exit code: 0), shutting down executor.",
            level="ERROR",
        ),
        "(EngineCore pid=202) Process EngineCore:",
        *[f"(EngineCore pid=202) {text}" for text in traceback(quote)],
        *NCCL_NOISE,
        *[f"(APIServer pid=101) {text}" for text in CORE_FAILED],
    ]


def engine_fails(raised: list[str]) -> list[str]:
    """The engine core (which runs the model itself) raises while booting."""
    return [
        *errors("EngineCore", ["EngineCore failed to start.", *raised]),
        "Process EngineCore:",
        *raised,
        *NCCL_NOISE,
        *CORE_FAILED,
    ]


def server_fails(raised: list[str]) -> list[str]:
    """The API server raises, before there is an engine."""
    return [f"(APIServer pid=101) {text}" for text in raised]


def engine_dies(raised: list[str]) -> list[str]:
    """The engine core raises while serving."""
    dead = "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See above."
    return [
        line(
            "EngineCore",
            "Dumping scheduler stats: SchedulerStats(num_running_reqs=48, kv_cache_usage=0.75)",
            level="ERROR",
        ),
        *errors("EngineCore", ["EngineCore encountered a fatal error.", *raised]),
        *errors("APIServer", ["AsyncLLM output_handler failed.", *traceback(dead)], "async_llm.py:906"),
        'INFO:     127.0.0.1:55090 - "POST /v1/completions HTTP/1.1" 500 Internal Server Error',
        "INFO:     Shutting down",
        "INFO:     Finished server process [101]",
    ]


def as_bytes(lines: list[str]) -> list[bytes]:
    """The log as the classifier takes it: one chunk."""
    return ["\n".join(lines).encode() + b"\n"]


RAISED_BY = {
    "worker": worker_fails,
    "engine": engine_fails,
    "server": server_fails,
    "serving": engine_dies,
    "bare": lambda raised: ["[rank0]: " + text for text in raised],
}


def reported() -> dict[str, Mapping[str, Any]]:
    """Failures as people reported them, by name."""
    cases: dict[str, Mapping[str, Any]] = yaml.safe_load((LOGS / "reported.yaml").read_text())
    return cases


def failing_log(case: Mapping[str, Any]) -> list[str]:
    """The whole log of one reported failure: the boot until then, loose lines, and the chain of errors."""
    lines = [*boot(case.get("until", "imports")), *case.get("lines", ())]
    if "raised_by" not in case:
        return lines
    frames = tuple(case.get("frames", ("main",)))
    file = case.get("frame_file", "/v/vllm/v1/worker/gpu_worker.py")
    return lines + RAISED_BY[case["raised_by"]](traceback(case["error"], frames, file))
