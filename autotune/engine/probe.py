"""Asks an engine over HTTP, and proves that it is the one we started.

Requests go over the loopback address with the standard library's client, which knows no proxies. While an
answer is awaited, ``keep_waiting`` is called five times a second: it raises when the wait has become
pointless.
"""

import http.client
import json
import select
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from autotune.engine import procfs
from autotune.engine.environment import HOST

POLL_S = 0.2
CONNECT_S = 5.0


class ProbeError(Exception):
    """The engine did not answer, or not as it should; the text says how."""


class WrongModel(ProbeError):
    """The server is up and serves something else."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer."""

    status: int
    body: bytes

    def json(self) -> dict[str, Any]:
        """The decoded body. Raises ``ProbeError`` where it is not a JSON object."""
        try:
            decoded = json.loads(self.body)
        except ValueError:
            decoded = None
        if not isinstance(decoded, dict):
            raise ProbeError(f"HTTP {self.status} with a body that is no JSON object: {self.body[:200]!r}")
        return decoded


def never_mind() -> None:
    """Wait for an answer without asking anyone."""


def ask(
    port: int,
    path: str,
    *,
    body: Any = None,
    method: str | None = None,
    limit_s: float = 10.0,
    keep_waiting: Callable[[], None] = never_mind,
) -> Answer:
    """One request; POST with JSON where there is a body. Raises ``ProbeError`` when there is no answer in
    time.
    """
    connection = http.client.HTTPConnection(HOST, port, timeout=CONNECT_S)
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"} if data else {}
    try:
        connection.request(method or ("POST" if data else "GET"), path, data, headers)
        _await_readable(connection.sock, limit_s, keep_waiting)
        response = connection.getresponse()
        return Answer(response.status, response.read())
    except (OSError, http.client.HTTPException) as error:
        raise ProbeError(f"{path}: {error!r}") from error
    finally:
        connection.close()


def _await_readable(sock: socket.socket, limit_s: float, keep_waiting: Callable[[], None]) -> None:
    # Not select(): that refuses descriptors above 1023, which a thousand requests in flight use up.
    waited_s, ready = 0.0, select.poll()
    ready.register(sock, select.POLLIN)
    while not ready.poll(1000 * POLL_S):
        keep_waiting()
        waited_s += POLL_S
        if waited_s >= limit_s:
            raise TimeoutError(f"no answer within {limit_s:.0f} s")


Owner = Literal["nobody", "ours", "foreign", "unknown"]


def listener(port: int, pids: Callable[[], Iterable[int]]) -> Owner:
    """Who listens on the port: only processes among ``pids()``, somebody else (too), or nobody.

    Unknown where the system does not tell, as in some sandboxes.
    """
    inodes = procfs.listening_inodes(port)
    if not inodes:
        return "unknown" if inodes is None else "nobody"
    held = set().union(*(procfs.socket_inodes(pid) for pid in pids()))
    return "ours" if inodes <= held else "foreign"


def free_port() -> int:
    """A loopback port that nobody used a moment ago; another may still take it before the engine does."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
    return port


def healthy(port: int, name: str, keep_waiting: Callable[[], None] = never_mind) -> bool:
    """Whether ``/health`` is 200 and ``/v1/models`` names our model. Raises ``WrongModel`` where it names
    others.
    """
    if ask(port, "/health", keep_waiting=keep_waiting).status != 200:
        return False
    listing = ask(port, "/v1/models", keep_waiting=keep_waiting)
    names = [model.get("id") for model in listing.json().get("data", [])] if listing.status == 200 else []
    if names and name not in names:
        raise WrongModel(f"the server on port {port} serves {names[0]!r} instead of {name!r}")
    return name in names


def complete(port: int, name: str, *, limit_s: float, keep_waiting: Callable[[], None] = never_mind) -> int:
    """Have two tokens generated and return how many came. Raises ``ProbeError`` on anything but success."""
    # Token ids need no tokenizer, and the lowest ones exist in every vocabulary.
    request = {"model": name, "prompt": [1, 2, 3, 4], "max_tokens": 2, "min_tokens": 2, "temperature": 0.0}
    answer = ask(port, "/v1/completions", body=request, limit_s=limit_s, keep_waiting=keep_waiting)
    if answer.status != 200:
        text = answer.body[:300].decode(errors="replace")
        raise ProbeError(f"the first completion got HTTP {answer.status}: {text}")
    tokens = (answer.json().get("usage") or {}).get("completion_tokens")
    return tokens if isinstance(tokens, int) else 0
