"""A server whose service times are known exactly, in a process of its own.

``python mock_server.py PORT_FILE [JSON options]`` binds a free port of 127.0.0.1, writes it to PORT_FILE and
answers ``POST /v1/completions`` and ``/v1/chat/completions`` with a stream: the first token ``ttft_s`` after
the request was read, then one every ``itl_s``. ``slots`` limits how many requests are served at once
(the rest queue, first come first served). ``stall`` = [at_s, for_s] freezes the server once, counted from
the first request. ``fail`` makes every ``fail_every``-th request go wrong in a named way.
``GET /stats`` tells what was served: counts, and per request [received, first write, last write, tokens] on
the host's monotonic clock.
"""

import asyncio
import json
import os
import sys
import time

import uvloop

TOKEN = (
    b'{"id":"c","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":" tok",'
    b'"logprobs":null,"finish_reason":null}],"usage":null}'
)


def chunk(event: bytes) -> bytes:
    body = b"data: " + event + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(body), body)


TOKEN_CHUNK = chunk(TOKEN)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"


class Server:
    def __init__(self, options):
        self.ttft_s = options.get("ttft_s", 0.02)
        self.itl_s = options.get("itl_s", 0.005)
        self.slots = asyncio.Semaphore(options.get("slots", 10**6))
        self.stall = options.get("stall")
        self.fail = options.get("fail")
        self.fail_every = options.get("fail_every", 10)
        self.joined = options.get("joined", 1)
        self.first_request = None
        self.stats = {"requests": 0, "prompt_tokens": 0, "output_tokens": 0, "served": [], "prompts": []}
        self.keep = options.get("keep_prompts", False)

    async def wait_until(self, when):
        await asyncio.sleep(max(0.0, when - time.perf_counter()))
        if self.stall and self.first_request is not None:
            start = self.first_request + self.stall[0]
            end = start + self.stall[1]
            now = time.perf_counter()
            if start <= now < end:
                await asyncio.sleep(end - now)

    async def serve(self, reader, writer):
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                received = time.perf_counter()
                length = 0
                for line in head.split(b"\r\n"):
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                body = json.loads(await reader.readexactly(length)) if length else {}
                if head.startswith(b"GET"):
                    await self.tell(head, writer)
                    continue
                if not await self.answer(body, writer, received):
                    writer.close()
                    return
        except (asyncio.IncompleteReadError, ConnectionError, RuntimeError):
            writer.close()

    async def tell(self, head, writer):
        known = {b"/stats": self.stats, b"/v1/models": {"data": [{"id": "m", "max_model_len": 4096}]}}
        found = known.get(head.split(b" ")[1])
        text = json.dumps(found).encode()
        status = b"404 Not Found" if found is None else b"200 OK"
        writer.write(b"HTTP/1.1 %s\r\ncontent-length: %d\r\n\r\n%s" % (status, len(text), text))

    async def answer(self, body, writer, received):
        if self.first_request is None:
            self.first_request = received
        self.stats["requests"] += 1
        number = self.stats["requests"]
        prompt = body.get("prompt") or json.dumps(body.get("messages"))
        n_prompt = len(prompt) if isinstance(prompt, list) else len(prompt.split())
        n_out = body.get("max_tokens") or body.get("max_completion_tokens")
        if self.keep:
            self.stats["prompts"].append(prompt)
        bad = self.fail if number % self.fail_every == 0 else None
        if bad == "http":
            text = b'{"error":{"message":"out of luck","code":503}}'
            writer.write(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: %d\r\n\r\n%s" % (len(text), text))
            return True
        async with self.slots:
            return await self.stream(writer, n_prompt, n_out, bad, received)

    async def stream(self, writer, n_prompt, n_out, bad, received):
        started = time.perf_counter()
        writer.write(HEAD)
        if bad == "short":
            n_out //= 2
        self.stats["prompt_tokens"] += n_prompt
        sent, first_written = 0, None
        while sent < n_out:
            await self.wait_until(started + self.ttft_s + sent * self.itl_s)
            joined = min(self.joined, n_out - sent)
            written = time.perf_counter()
            first_written = first_written or written
            writer.write(TOKEN_CHUNK)
            sent += joined
            self.stats["output_tokens"] += joined
            if bad and sent >= n_out // 2 and bad != "short":
                break
        if bad == "reset":
            writer.transport.abort()
            return False
        if bad == "hang":
            await asyncio.sleep(3600)
        if bad == "error":
            writer.write(chunk(b'{"error": {"message": "EngineCore encountered an issue.", "code": 500}}'))
        elif bad == "abort":
            writer.write(chunk(TOKEN.replace(b'"finish_reason":null', b'"finish_reason":"abort"')))
        if bad not in ("error", "nousage"):
            usage = {"prompt_tokens": n_prompt, "completion_tokens": sent, "total_tokens": n_prompt + sent}
            writer.write(chunk(json.dumps({"id": "c", "choices": [], "usage": usage}).encode()))
        self.stats["served"].append([received, first_written, written, sent])
        writer.write(chunk(b"[DONE]") + b"0\r\n\r\n")
        return True


async def main(port_file, options):
    server = await asyncio.start_server(Server(options).serve, "127.0.0.1", 0, limit=2**24, backlog=2048)
    with open(port_file + ".new", "w") as file:
        file.write(str(server.sockets[0].getsockname()[1]))
    os.rename(port_file + ".new", port_file)
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(sys.argv[1], json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}))
