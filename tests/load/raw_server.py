"""A server that says on its sockets whatever a test wants, in threads of this process."""

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

Say = Callable[[socket.socket], None]
MODELS = b'{"data":[{"id":"m","max_model_len":4096}]}'
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
TOKEN = b'{"id":"c","choices":[{"index":0,"text":" tok","logprobs":null,"finish_reason":null}],"usage":null}'


def whole(body: bytes, kind: bytes = b"application/json") -> bytes:
    """A 200 answer with a length."""
    return b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n%s" % (kind, len(body), body)


def events(*payloads: bytes) -> bytes:
    return b"".join(b"data: " + payload + b"\n\n" for payload in payloads)


def chunk(body: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(body), body)


def saying(answer: bytes, *, close: bool = False) -> Say:
    """Say it after a moment, as a server that works would."""

    def say(connection: socket.socket) -> None:
        time.sleep(0.02)
        connection.sendall(answer)
        if close:
            raise ConnectionError("said all")

    return say


def again_and_again(first: bytes, then: bytes, every_s: float) -> Say:
    """Say ``first``, then ``then`` without an end."""

    def say(connection: socket.socket) -> None:
        connection.sendall(first)
        while True:
            connection.sendall(then)
            time.sleep(every_s)

    return say


def nothing(connection: socket.socket) -> None:
    """Say nothing until the other side has gone."""
    while connection.recv(1000):
        pass


@dataclass
class RawServer:
    """``says`` maps the beginning of a request ("GET /v1/models") to what is said; else 404."""

    says: Mapping[str, Say]
    listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0), backlog=512))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with suppress(OSError, ValueError), connection, connection.makefile("rb") as reader:
            while request := reader.readline().decode():
                length = 0
                while (line := reader.readline()) not in (b"\r\n", b""):
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                reader.read(length)
                say = next((say for start, say in self.says.items() if request.startswith(start)), None)
                (say or saying(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"))(connection)


@contextmanager
def raw_server(says: Mapping[str, Say]) -> Iterator[RawServer]:
    server = RawServer({"GET /v1/models": saying(whole(MODELS)), **says})
    threading.Thread(target=server.serve, daemon=True).start()
    try:
        yield server
    finally:
        server.listener.shutdown(socket.SHUT_RDWR)
        server.listener.close()
