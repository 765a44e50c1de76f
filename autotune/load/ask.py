"""Single requests beside the load: what a server serves, its metrics, what a text costs in tokens.

They take the same way as the load: straight to the server, past any proxy that the environment names, and to
no other place that it may name. Whatever the server does, a request ends in time and its answer fits into memory.
"""

import asyncio
import os

from autotune.load.endpoint import Endpoint
from autotune.load.http import ProtocolError, ResponseDecoder
from autotune.load.types import Target

ANSWER_MOST = 16 * 2**20
_READ = 2**16


def ask(target: Target, path: str, body: bytes | None = None, *, limit_s: float = 10.0) -> bytes:
    """The body of a 200 answer, at most ``ANSWER_MOST`` bytes; POST with JSON where ``body`` is given.

    Raises ``OSError`` (no whole answer within ``limit_s``, another status, an event stream, which nobody asked for)
    and ``UsageError`` where the target's URL is none.
    """
    endpoint = Endpoint.of(target, path, method="GET" if body is None else "POST", accept="*/*")
    content = body or b""
    request = endpoint.head + f"{len(content)}\r\nConnection: close\r\n\r\n".encode() + content
    return asyncio.run(_ask_within(limit_s, endpoint, request))


async def _ask_within(limit_s: float, endpoint: Endpoint, request: bytes) -> bytes:
    try:
        async with asyncio.timeout(limit_s):
            return await _exchange(endpoint, request)
    except TimeoutError:
        raise OSError(f"no whole answer within {limit_s:g} s") from None
    except ConnectionError as error:
        raise OSError(os.strerror(error.errno) if error.errno else str(error)) from None
    except UnicodeError as error:
        raise OSError(f"{endpoint.host!r} is no host's name: {error}") from None
    except ProtocolError as error:
        raise OSError(f"no HTTP answer: {error}") from None


async def _exchange(endpoint: Endpoint, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port, ssl=endpoint.tls)
    try:
        writer.write(request)
        return await _answer(reader)
    finally:
        writer.transport.abort()


async def _answer(reader: asyncio.StreamReader) -> bytes:
    decoder, content = ResponseDecoder(), bytearray()
    while not decoder.complete:
        data = await reader.read(_READ)
        if data:
            content += decoder.feed(data)
        else:
            decoder.end_of_stream()
        if decoder.status > 200:
            place = decoder.headers.get("location")
            raise OSError(f"HTTP {decoder.status}" + (f", sent on to {place!r}" if place else ""))
        if "event-stream" in decoder.headers.get("content-type", ""):
            raise OSError("a stream of events")
        if len(content) > ANSWER_MOST:
            raise OSError(f"an answer longer than {ANSWER_MOST // 2**20} MiB")
    return bytes(content)
