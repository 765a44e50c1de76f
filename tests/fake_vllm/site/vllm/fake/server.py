"""The API server process: parses, starts the engine process, listens, serves, stops.

Signals as real vLLM takes them: before the engine starts SIGTERM ends the process at once; while it starts SIGTERM is
swallowed (``sigterm_in_start``); while serving it aborts the streams and ends everything with exit code 0. SIGINT under
load kills the engine and leaves the streams hanging until their clients go (``sigint_stalls``).
"""

import argparse
import multiprocessing
import os
import signal
import socket
import sys
import time
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import NoReturn

from vllm.engine.arg_utils import make_arg_parser
from vllm.fake import settings as config
from vllm.fake.breaking import break_api
from vllm.fake.core import run_core
from vllm.fake.failures import BREAKAGES
from vllm.fake.log import Log, plain, traceback
from vllm.fake.phases import Boot
from vllm.fake.process import sleep_forever
from vllm.fake.settings import ConfigError, Settings


def run_server(args: argparse.Namespace) -> NoReturn:
    """Run one server from parsed flags until it ends."""
    log = Log("APIServer")
    settings = _settings(args, log)
    signal.alarm(settings.behaviour.life_s)
    boot = Boot(settings, log)
    boot.enter("imports")
    _log_given(args, log)
    log.info("model.py:733", f"Resolved architecture: {settings.architecture}")
    log.info("model.py:2152", f"Using max model len {settings.model_len}")
    if settings.flags["enable-chunked-prefill"]:
        tokens = settings.max_num_batched_tokens
        log.info("scheduler.py:307", f"Chunked prefill is enabled with max_num_batched_tokens={tokens}.")
    boot.enter("config")
    listener = _bind(settings)
    conn, process = _start_core(settings)
    boot.enter("server")
    from vllm.fake.api import serve

    code = serve(settings, log, listener, conn, process)
    sys.stdout.flush()
    os._exit(code)


def _log_given(args: argparse.Namespace, log: Log) -> None:
    usual = vars(make_arg_parser(serve_command=False).parse_args([])) | {"subparser": "serve"}
    given = {name: value for name, value in vars(args).items() if value != usual[name]}
    log.info("api_utils.py:286", f"non-default args: {given}")


def _settings(args: argparse.Namespace, log: Log) -> Settings:
    try:
        return config.resolve(args, os.environ)
    except ConfigError as error:
        text = (
            f"pydantic_core._pydantic_core.ValidationError: 1 validation error for {error.config}\n"
            f"  Value error, {error} [type=value_error, input_value=ArgsKwargs(...), input_type=ArgsKwargs]"
        )
    except FileNotFoundError as error:
        text = (
            "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or "
            f"'namespace/repo_name': '{error}'. Use `repo_type` argument if needed."
        )
    _log_given(args, log)
    plain(traceback(text))
    sys.exit(1)


def _bind(settings: Settings) -> socket.socket:
    """Take the port early, as vLLM does; it listens only when the engine is ready."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.flags["host"] or "0.0.0.0", settings.flags["port"]))
    except OSError:
        break_api(settings, BREAKAGES["port_in_use"])
    return listener


def _start_core(settings: Settings) -> tuple[Connection, SpawnProcess]:
    context = multiprocessing.get_context("spawn")
    conn, theirs = context.Pipe()
    process = context.Process(target=run_core, args=(theirs, settings), name="EngineCore")
    process.start()
    theirs.close()
    _guard_start(settings, process)
    if not _ready(conn):
        process.join()
        plain(
            traceback(
                "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): "
                f"{{'EngineCore': {process.exitcode}}}"
            )
        )
        os._exit(1)
    return conn, process


def _ready(conn: Connection) -> bool:
    try:
        return bool(conn.recv()[0] == "ready")
    except EOFError:
        return False


def _guard_start(settings: Settings, process: SpawnProcess) -> None:
    """Signals while the engine starts."""

    def on_term(_number: int, _frame: object) -> None:
        if settings.behaviour.sigterm_in_start == "hang":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            sleep_forever()
        if settings.behaviour.sigterm_in_start == "die":
            process.kill()
            os._exit(-signal.SIGTERM & 0xFF)

    def on_int(_number: int, _frame: object) -> None:
        process.kill()
        process.join()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)

    signal.signal(signal.SIGTERM, on_term)
    signal.signal(signal.SIGINT, on_int)
