"""``autotune explain``: why a vLLM log shows a failure, and what to do about it."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from autotune.errors import UsageError

_CHUNK = 1 << 20


def explain(
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="The log of `vllm serve`, or - for standard input.")],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    exit_code: Annotated[
        int | None, typer.Option("--exit-code", help="The server's exit code (negative or 128 + n for a signal).")
    ] = None,
    stopped: Annotated[
        bool | None, typer.Option("--stopped/--not-stopped", help="Whether somebody asked the server to stop.")
    ] = None,
    oom_kills: Annotated[
        int | None, typer.Option("--oom-kills", help="By how much the cgroup's oom_kill counter rose.")
    ] = None,
) -> None:
    """Say what a vLLM log shows: the class of the failure, its phase, its first cause, the margin and what to do.

    A healthy log gives the facts of the boot instead. The exit code is 0 either way.
    """
    from autotune.engine.explain import as_json, as_text
    from autotune.engine.failures import diagnose

    log = _standard_input() if file == "-" else _existing(Path(file))
    try:
        diagnosis = diagnose(log, exit_code=exit_code, stop_requested=stopped, oom_kills=oom_kills)
    except OSError as error:
        raise UsageError(f"Cannot read {file}: {error.strerror}. Give a log file, or - for standard input.") from error
    typer.echo(_dumps(as_json(diagnosis)) if json else as_text(diagnosis))


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise UsageError(f"No such log file: {path}. Give the file that holds the output of `vllm serve`, or -.")
    return path


def _standard_input() -> Iterator[bytes]:
    while chunk := sys.stdin.buffer.read(_CHUNK):
        yield chunk


def _dumps(value: dict[str, object]) -> str:
    from json import dumps

    return dumps(value, indent=2, ensure_ascii=False)
