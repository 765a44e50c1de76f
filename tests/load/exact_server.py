"""A completion server that knows to the microsecond what it did, at tens of thousands of tokens per second.

``exact_server.py PORT_FILE [JSON options]``: every stream gets one token per ``itl_s``, each in a write of its own; the
streams are spread over ``groups`` moments of that time, so that the client is loaded evenly. The first token comes
at the stream's first moment after ``ttft_s``. Unlike ``mock_server`` it has no task per stream: one loop writes, and
notes the time right before each write. ``GET /served`` gives, for each finished request, [received, times of
the writes …] on the host's monotonic clock; requests that are still running are left out.
"""

import asyncio
import json
import os
import re
import sys
import time
from itertools import count

import uvloop

TOKEN = b'data: {"id":"c","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":" tok",'
TOKEN += b'"logprobs":null,"finish_reason":null}],"usage":null}\n\n'
CHUNK = b"%x\r\n%s\r\n" % (len(TOKEN), TOKEN)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
LIMIT = re.compile(rb'"max_tokens": *(\d+)')


class Stream(asyncio.Protocol):
    """One connection; answers one completion at a time."""

    def __init__(self, server, group):
        self.server, self.group = server, group
        self.buffer = b""

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        now = time.perf_counter()
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        length = LENGTH.search(self.buffer[:end])
        whole = end + 4 + (int(length.group(1)) if length else 0)
        if len(self.buffer) < whole:
            return
        request, self.buffer = self.buffer[:whole], self.buffer[whole:]
        if request.startswith(b"GET"):
            text = json.dumps(self.server.served).encode()
            self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(text), text))
            return
        self.left = int(LIMIT.search(request).group(1))
        self.times = [now]
        self.transport.write(HEAD)
        self.server.groups[self.group].add(self)

    def connection_lost(self, exc):
        self.server.groups[self.group].discard(self)

    def send(self, ttft_s):
        if len(self.times) == 1 and time.perf_counter() < self.times[0] + ttft_s:
            return
        self.left -= 1
        self.times.append(time.perf_counter())
        self.transport.write(CHUNK)
        if self.left == 0:
            n = len(self.times) - 1
            usage = b'data: {"id":"c","choices":[],"usage":{"prompt_tokens":32,"completion_tokens":%d}}\n\n' % n
            self.transport.write(b"%x\r\n%s\r\ne\r\ndata: [DONE]\n\n\r\n0\r\n\r\n" % (len(usage), usage))
            self.server.groups[self.group].discard(self)
            self.server.served.append(self.times)


class Server:
    """All streams, served group by group."""

    def __init__(self, options):
        self.ttft_s, self.itl_s = options["ttft_s"], options["itl_s"]
        self.groups = [set() for _ in range(options["groups"])]
        self.served = []

    async def run(self, port_file):
        loop, numbers = asyncio.get_running_loop(), count()
        server = await loop.create_server(
            lambda: Stream(self, next(numbers) % len(self.groups)), "127.0.0.1", 0, backlog=4096
        )
        with open(port_file + ".new", "w") as file:
            file.write(str(server.sockets[0].getsockname()[1]))
        os.rename(port_file + ".new", port_file)
        next_s, step_s = loop.time(), self.itl_s / len(self.groups)
        for number in count():
            for stream in list(self.groups[number % len(self.groups)]):
                stream.send(self.ttft_s)
            next_s = max(next_s + step_s, loop.time())
            await asyncio.sleep(next_s - loop.time())


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(Server(json.loads(sys.argv[2])).run(sys.argv[1]))
