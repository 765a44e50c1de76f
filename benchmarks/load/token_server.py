"""A completion server that costs almost nothing per token, so that the client is what a benchmark measures.

``token_server.py PORT_FILE --itl-ms 20`` sends one token to every stream every 20 ms, each in a write of its
own (*paced*: nothing is joined on the way). ``--itl-ms 0`` sends tokens as fast as the sockets take them
(*saturated*), ``--burst`` tokens per write.
"""

import argparse
import asyncio
import os
import re
from pathlib import Path

import uvloop

TOKEN = (
    b'data: {"id":"cmpl-8f4b1c52a1d94be3a9d5d0c9a1f0b6de-0","object":"text_completion","created":1764510000,'
    b'"model":"m","choices":[{"index":0,"text":" token","logprobs":null,"finish_reason":null,'
    b'"stop_reason":null,"token_ids":null}],"usage":null}\n\n'
)
CHUNK = b"%x\r\n%s\r\n" % (len(TOKEN), TOKEN)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
MODELS = b'{"object":"list","data":[{"id":"m","object":"model","max_model_len":32768}]}'
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
LIMIT = re.compile(rb'"max_tokens": *(\d+)')
PROMPT = re.compile(rb'"prompt": *\[([^\]]*)\]')


class Stream(asyncio.Protocol):
    """One connection; answers one completion at a time."""

    def __init__(self, server: "Server") -> None:
        self.server = server
        self.buffer = b""
        self.left = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        length = LENGTH.search(self.buffer[:end])
        size = int(length.group(1)) if length else 0
        if len(self.buffer) < end + 4 + size:
            return
        head, body = self.buffer[:end], self.buffer[end + 4 : end + 4 + size]
        self.buffer = self.buffer[end + 4 + size :]
        if head.startswith(b"GET"):
            self.transport.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(MODELS)
            )
            self.transport.write(MODELS)
            return
        limit, prompt = LIMIT.search(body), PROMPT.search(body)
        self.tokens = self.left = int(limit.group(1)) if limit else 16
        self.prompt = prompt.group(1).count(b",") + 1 if prompt else 1
        self.transport.write(HEAD)
        self.server.active.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.active.discard(self)

    def send(self, burst: int) -> None:
        """One write of up to ``burst`` tokens; the last is followed by usage and end."""
        n = min(burst, self.left)
        self.left -= n
        self.transport.write(CHUNK * n)
        self.server.tokens += n
        if self.left == 0:
            self.server.active.discard(self)
            usage = b'data: {"id":"c","choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d}}\n\n' % (
                self.prompt,
                self.tokens,
            )
            self.transport.write(b"%x\r\n%s\r\ne\r\ndata: [DONE]\n\n\r\n0\r\n\r\n" % (len(usage), usage))


class Server:
    """All streams, served in rounds."""

    def __init__(self, itl_s: float, burst: int) -> None:
        self.itl_s, self.burst = itl_s, burst
        self.active: set[Stream] = set()
        self.tokens = 0

    async def run(self, port_file: Path) -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Stream(self), "127.0.0.1", 0, backlog=4096)
        fresh = port_file.with_suffix(".new")
        fresh.write_text(str(server.sockets[0].getsockname()[1]))
        os.rename(fresh, port_file)
        next_s = loop.time()
        while True:
            for stream in list(self.active):
                stream.send(self.burst)
            next_s = max(next_s + self.itl_s, loop.time())
            await asyncio.sleep(next_s - loop.time() if self.itl_s else 0 if self.active else 0.001)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port_file", type=Path)
    parser.add_argument("--itl-ms", type=float, default=20.0)
    parser.add_argument("--burst", type=int, default=1)
    args = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(Server(args.itl_ms / 1e3, args.burst).run(args.port_file))


if __name__ == "__main__":
    main()
