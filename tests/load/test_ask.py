"""Requests beside the load: straight to the server, and every way of not answering is one kind of error."""

import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from autotune.errors import UsageError
from autotune.load.ask import ask
from autotune.load.types import Target


def test_a_proxy_in_the_environment_is_passed_by(mock: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert b'"id": "m"' in ask(mock().target, "/v1/models")


def test_another_status_is_an_error(mock: Callable[..., Any]) -> None:
    with pytest.raises(OSError, match="HTTP 404"):
        ask(mock().target, "/nowhere")


def test_a_server_that_speaks_no_http_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"SSH-2.0-OpenSSH\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(OSError, match="no HTTP answer"):
            ask(Target(f"http://127.0.0.1:{server.getsockname()[1]}", "m"), "/v1/models", limit_s=5)
        thread.join()


def test_a_bad_url_is_the_persons() -> None:
    with pytest.raises(UsageError, match="is not a server's URL"):
        ask(Target("http://[half", "m"), "/v1/models")
