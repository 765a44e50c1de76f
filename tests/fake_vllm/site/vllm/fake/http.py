"""Just enough HTTP/1.1: requests with a length, kept-alive connections, plain and chunked answers."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

REASON = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 503: "Service Unavailable"}


@dataclass
class Exchange:
    """One request and the way to answer it."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    streaming: bool = False

    def json(self) -> dict[str, Any]:
        """The body as an object; raises ``ValueError`` where it is none."""
        value = json.loads(self.body)
        if not isinstance(value, dict):
            raise ValueError("not an object")
        return value

    @property
    def gone(self) -> bool:
        """Whether the client has left."""
        return self.reader.at_eof() or self.writer.is_closing()

    async def answer(self, status: int, content: object = None, kind: str = "application/json") -> None:
        """Send a whole answer."""
        data = (
            content.encode() if isinstance(content, str) else b"" if content is None else json.dumps(content).encode()
        )
        head = (
            f"HTTP/1.1 {status} {REASON.get(status, 'Error')}\r\ncontent-type: {kind}\r\n"
            f"content-length: {len(data)}\r\n\r\n"
        )
        self.writer.write(head.encode() + data)
        await self.writer.drain()

    async def start_stream(self) -> None:
        """Send the head of an event stream."""
        self.streaming = True
        self.writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        await self.writer.drain()

    def event(self, content: object) -> None:
        """Put one event into the stream; text is sent as it is."""
        data = content if isinstance(content, str) else json.dumps(content, separators=(",", ":"))
        text = f"data: {data}\n\n".encode()
        self.writer.write(b"%x\r\n%b\r\n" % (len(text), text))

    async def end_stream(self) -> None:
        """Close the stream, keep the connection."""
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()


Handler = Callable[[Exchange], Awaitable[None]]


async def serve_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handle: Handler) -> None:
    """Answer the requests of one connection until either side closes it."""
    try:
        while exchange := await _read(reader, writer):
            await handle(exchange)
            await writer.drain()
            if exchange.headers.get("connection", "").lower() == "close":
                break
    except (ConnectionError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Exchange | None:
    line = await reader.readline()
    if not line:
        return None
    method, target, _ = line.decode("latin-1").split(" ", 2)
    headers: dict[str, str] = {}
    while (line := await reader.readline()).strip():
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    body = await _body(reader, writer, headers)
    url = urlsplit(target)
    return Exchange(method, url.path, parse_qs(url.query), headers, body, reader, writer)


async def _body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, headers: dict[str, str]) -> bytes:
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    if headers.get("transfer-encoding", "").lower() != "chunked":
        return await reader.readexactly(int(headers.get("content-length", 0)))
    body = b""
    while size := int((await reader.readline()).split(b";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
    return body
