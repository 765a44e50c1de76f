"""The streaming client: connections, the pool that holds them, and one exchange per request.

Nothing runs per token but ``Connection.data_received``: the time is taken when the read arrives, the HTTP
framing and the events are scanned (``http``, ``sse``), counters move. No task, no future, no JSON. A
request that was sent on a kept-alive connection which the server closed at that very moment is sent once
more on a fresh one; that is the only retry.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from autotune.load.endpoint import Endpoint
from autotune.load.http import ProtocolError, ResponseDecoder
from autotune.load.records import GapHistogram, Outcome
from autotune.load.sse import EventScanner, Template

BODY_KEPT = 2000


@dataclass(slots=True, eq=False)
class Exchange:
    """One request and what came back. Times in seconds of ``time.perf_counter``; 0 = not yet."""

    payload: bytes
    due: float
    expected_tokens: int
    prompt_tokens: int
    partial: bool
    sent: float = 0.0
    first: float = 0.0
    last: float = 0.0
    ended: float = 0.0
    events: int = 0
    scanner: EventScanner = field(default_factory=EventScanner)
    outcome: Outcome = Outcome.OK
    detail: str = ""
    retried: bool = False
    connection: "Connection | None" = None


@dataclass(slots=True)
class Counters:
    """Live totals of one client, moved on the hot path."""

    events: int = 0
    first_tokens: int = 0
    gaps: GapHistogram = field(default_factory=GapHistogram)


class Connection(asyncio.Protocol):
    """One TCP connection; serves one exchange at a time."""

    def __init__(self, pool: "Pool") -> None:
        self._pool = pool
        self._counters = pool.counters
        self._decoder = ResponseDecoder()
        self._exchange: Exchange | None = None
        self._transport: asyncio.Transport | None = None
        self._body = b""
        self._plain: Template | None = None
        self.used = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: the socket is open."""
        self._transport = cast(asyncio.Transport, transport)

    def start(self, exchange: Exchange) -> None:
        """Send a request; ``exchange.sent`` is the moment before the write, unless already set."""
        assert self._transport is not None
        self._exchange = exchange
        exchange.connection = self
        self._decoder.reset()
        self._body, self._plain = b"", None
        if not exchange.sent:
            exchange.sent = time.perf_counter()
        size = str(len(exchange.payload)).encode()
        self._transport.writelines((self._pool.endpoint.head, size, b"\r\n\r\n", exchange.payload))

    def data_received(self, data: bytes) -> None:
        """asyncio: bytes arrived."""
        now = time.perf_counter()
        exchange = self._exchange
        if exchange is None:
            self.close()
        elif self._plain is not None and self._is_plain(data, *self._plain):
            self._counters.gaps.pending.append(now - exchange.last)
            exchange.last = now
            exchange.events += 1
            self._counters.events += 1
        else:
            self._decode(exchange, data, now)

    @staticmethod
    def _is_plain(data: bytes, start: bytes, end: bytes) -> bool:
        """Whether a read is exactly one chunk that holds exactly one plain token event."""
        head = data.find(b"\r", 1, 8)
        try:
            return (
                data.startswith(start, head + 2)
                and data.endswith(end)
                and data.find(b"\n", head + 2) == len(data) - 4
                and int(data[:head], 16) == len(data) - head - 4
            )
        except ValueError:
            return False

    def _decode(self, exchange: Exchange, data: bytes, now: float) -> None:
        try:
            body = self._decoder.feed(data)
        except ProtocolError as error:
            self._finish(Outcome.RESET, str(error))
            return
        if body:
            self._scan(exchange, body, now)
        scanner = exchange.scanner
        if self._decoder.complete:
            self._scan(exchange, b"", now)
            self._complete(exchange)
        elif scanner.outcome.malformed:
            self._finish(*_judge(exchange, self._decoder))
        elif scanner.template and exchange.events and self._decoder.at_chunk and scanner.at_boundary:
            start, end = scanner.template
            self._plain = start, end + b"\r\n"
        else:
            self._plain = None

    def _scan(self, exchange: Exchange, body: bytes, now: float) -> None:
        if self._decoder.status != 200:
            self._body += body[: BODY_KEPT - len(self._body)]
            return
        events = exchange.scanner.feed(body) if body else exchange.scanner.finish()
        if not events:
            return
        counters = self._counters
        if exchange.events:
            counters.gaps.pending.append(now - exchange.last)
        else:
            exchange.first = now
            counters.first_tokens += 1
        if events > 1:
            counters.gaps.pending.extend((0.0,) * (events - 1))
        exchange.last = now
        exchange.events += events
        counters.events += events

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: the socket is closed."""
        self._pool.forget(self)
        exchange = self._exchange
        if exchange is None:
            return
        if self.used and not exchange.retried and not self._decoder.status:
            self._exchange, exchange.retried = None, True
            self._pool.send(exchange)
            return
        try:
            self._decoder.end_of_stream()
        except ProtocolError as error:
            self._finish(Outcome.RESET, str(exc or error))
        else:
            self._end_with_the_connection(exchange)

    def _end_with_the_connection(self, exchange: Exchange) -> None:
        """The body lasted until the close, which may have come in the middle of an event."""
        self._scan(exchange, b"", time.perf_counter())
        broken_rest = exchange.scanner.outcome.malformed
        if exchange.events and broken_rest:
            self._finish(Outcome.RESET, f"the server closed the connection in the middle of an event: {broken_rest}")
        else:
            self._complete(exchange)

    def close(self) -> None:
        """Drop the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def fail(self, outcome: Outcome, detail: str) -> None:
        """End the running exchange from outside (deadline, end of the load)."""
        self._finish(outcome, detail)

    def _complete(self, exchange: Exchange) -> None:
        if self._decoder.status != 200:
            detail = f"HTTP {self._decoder.status}: {self._body.decode(errors='replace')}"
            self._finish(Outcome.HTTP_ERROR, detail, reusable=self._decoder.keep_alive)
            return
        self._finish(*_judge(exchange, self._decoder), reusable=self._decoder.keep_alive)

    def _finish(self, outcome: Outcome, detail: str = "", *, reusable: bool = False) -> None:
        exchange, self._exchange = self._exchange, None
        assert exchange is not None
        exchange.connection = None
        exchange.outcome, exchange.detail, exchange.ended = outcome, detail, time.perf_counter()
        if reusable:
            self.used = True
            self._pool.give(self)
        else:
            self.close()
        self._pool.on_done(exchange)


def _judge(exchange: Exchange, decoder: ResponseDecoder) -> tuple[Outcome, str]:
    """Whether a 200 answer really is one: HTTP 200 and ``[DONE]`` do not say so."""
    outcome, kind = exchange.scanner.outcome, decoder.headers.get("content-type", "event-stream")
    named = "" if "event-stream" in kind else f"content type {kind!r}"
    if outcome.malformed:
        return Outcome.NOT_A_STREAM, f"{named}, {outcome.malformed}" if named else outcome.malformed
    if outcome.error:
        return Outcome.STREAM_ERROR, outcome.error
    if outcome.finish_reason:
        return Outcome.ABORTED, f"finish_reason {outcome.finish_reason!r}"
    if named:
        return Outcome.NOT_A_STREAM, named
    if outcome.completion_tokens is None:
        ended = "after [DONE]" if outcome.done else "and ended early"
        return Outcome.NO_USAGE, f"{exchange.events} events without usage {ended}"
    if outcome.completion_tokens < exchange.expected_tokens:
        return Outcome.SHORT, f"{outcome.completion_tokens} of {exchange.expected_tokens} tokens"
    return Outcome.OK, ""


class Pool:
    """Connections to one endpoint, opened as needed and reused last in, first out."""

    def __init__(
        self,
        endpoint: Endpoint,
        counters: Counters,
        on_done: Callable[[Exchange], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.endpoint = endpoint
        self.counters = counters
        self.on_done = on_done
        self._loop = loop
        self._idle: list[Connection] = []
        self._opening: set[asyncio.Task[None]] = set()

    def send(self, exchange: Exchange) -> None:
        """Send now, on an idle connection or a new one."""
        if self._idle and not exchange.retried:
            self._idle.pop().start(exchange)
            return
        exchange.sent = exchange.sent or time.perf_counter()
        task = self._loop.create_task(self._open(exchange))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self, exchange: Exchange) -> None:
        endpoint = self.endpoint
        try:
            _, connection = await self._loop.create_connection(
                lambda: Connection(self), endpoint.host, endpoint.port, ssl=endpoint.tls
            )
        except OSError as error:
            exchange.outcome, exchange.detail = Outcome.CONNECT, f"{endpoint.name}: {error}"
            exchange.ended = time.perf_counter()
            self.on_done(exchange)
            return
        if exchange.ended:
            connection.close()
        else:
            connection.start(exchange)

    def give(self, connection: Connection) -> None:
        """Take back a connection whose exchange is over."""
        self._idle.append(connection)

    def forget(self, connection: Connection) -> None:
        """Drop a closed connection."""
        if connection in self._idle:
            self._idle.remove(connection)

    def close(self) -> None:
        """Close everything that is idle or being opened."""
        for task in self._opening:
            task.cancel()
        for connection in self._idle:
            connection.close()
        self._idle.clear()
