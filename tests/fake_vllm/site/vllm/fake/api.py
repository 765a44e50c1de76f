"""The serving half of the API server: one event loop between clients and the engine process."""

import asyncio
import os
import random
import signal
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

from vllm._version import __version__
from vllm.fake.http import Exchange, serve_connection
from vllm.fake.info import cache_info, resolved_config
from vllm.fake.language import Model, decode, encode
from vllm.fake.log import Log, plain, traceback
from vllm.fake.metrics import Metrics
from vllm.fake.openai import Ask, Refused, Shaper, error_body, parse
from vllm.fake.settings import Settings

DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."
STATS_EVERY_S = 10.0


class EngineDead(Exception):
    """The engine process is gone."""


@dataclass
class Stream:
    """Tokens of one request on their way to its client."""

    ask: Ask
    arrived: float
    queue: "asyncio.Queue[tuple[int, str | None] | str]" = field(default_factory=asyncio.Queue)
    cached: int = 0
    made: int = 0
    last_at: float = 0.0
    first_at: float = 0.0


def serve(settings: Settings, log: Log, listener: socket.socket, conn: Connection, process: SpawnProcess) -> int:
    """Serve until stopped; returns the exit code."""
    return asyncio.run(Api(settings, log, conn, process).run(listener))


class Api:
    """All state of the serving process."""

    def __init__(self, settings: Settings, log: Log, conn: Connection, process: SpawnProcess) -> None:
        self.settings = settings
        self.behaviour = settings.behaviour
        self.log = log
        self.conn = conn
        self.process = process
        self.model = Model(settings.vocab, self.behaviour.precision_noise, self.behaviour.garbage)
        self.luck = random.Random(f"{self.behaviour.seed} {settings.served_names}")
        self.metrics = Metrics(settings.served_name, cache_info(settings), self.behaviour.metrics_factor)
        self.streams: dict[str, Stream] = {}
        self.dead = False
        self.count = 0
        self.resets: asyncio.Queue[bool] = asyncio.Queue()
        self.stopping = ""

    async def run(self, listener: socket.socket) -> int:
        """Listen and wait for the end."""
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[int] = loop.create_future()
        loop.add_reader(self.conn.fileno(), self._from_engine)
        loop.add_signal_handler(signal.SIGTERM, self._on_signal, signal.SIGTERM)
        loop.add_signal_handler(signal.SIGINT, self._on_signal, signal.SIGINT)
        if self.behaviour.exit_after_s is not None:
            loop.call_later(self.behaviour.exit_after_s, os._exit, self.behaviour.exit_code)
        host, port = listener.getsockname()[:2]
        self.log.info("launcher.py:120", f"Starting vLLM server on http://{host}:{port}")
        plain(f"INFO:     Started server process [{os.getpid()}]\nINFO:     Waiting for application startup.")
        await asyncio.start_server(lambda r, w: serve_connection(r, w, self.handle), sock=listener, backlog=2048)
        plain("INFO:     Application startup complete.")
        stats = loop.create_task(self._log_stats())
        code = await self.ended
        stats.cancel()
        return code

    def _on_signal(self, number: signal.Signals) -> None:
        if number == signal.SIGTERM and self.behaviour.sigterm == "ignore":
            return
        if not self.stopping:
            stalls = number == signal.SIGINT and self.streams and self.behaviour.sigint_stalls
            self.stopping = "stall" if stalls else "stop"
            self._task = asyncio.get_running_loop().create_task(self._stop())

    async def _stop(self) -> None:
        timeout = self.settings.flags["shutdown-timeout"]
        self.log.info("launcher.py:254", "[shutdown] API server: shutdown triggered")
        self.log.info("launcher.py:270", f"[shutdown] API server: stopping engine client mode=abort timeout={timeout}s")
        if self.stopping == "stall":
            self._kill_core()
            plain("INFO:     Shutting down\nINFO:     Waiting for connections to close. (CTRL+C to force quit)")
            while self.streams:
                await asyncio.sleep(0.05)
        else:
            await self._drain(timeout)
            for stream in self.streams.values():
                stream.queue.put_nowait((-1, "abort"))
            while self.streams:
                await asyncio.sleep(0.01)
            self._kill_core()
        self.log.info("launcher.py:304", "[shutdown] API server: shutting down FastAPI HTTP server")
        plain("INFO:     Shutting down\nINFO:     Waiting for application shutdown.")
        plain("INFO:     Application shutdown complete.")
        if not self.ended.done():
            self.ended.set_result(0)

    async def _drain(self, timeout: float) -> None:
        end = time.monotonic() + timeout
        while self.streams and time.monotonic() < end:
            await asyncio.sleep(0.05)

    def _kill_core(self) -> None:
        if self.behaviour.orphan:
            return
        self.log.info("utils.py:628", "[shutdown] Process manager: send sigterm to process EngineCore")
        self.process.terminate()
        self.process.join(0.2)
        if self.process.is_alive():
            self.process.kill()

    def _from_engine(self) -> None:
        try:
            while self.conn.poll():
                self._take(self.conn.recv())
        except (EOFError, OSError):
            asyncio.get_running_loop().remove_reader(self.conn.fileno())
            if not self.stopping:
                self._engine_died()

    def _take(self, message: tuple[Any, ...]) -> None:
        if message[0] == "reset":
            self.resets.put_nowait(message[1])
            return
        _, tokens, self.metrics.engine = message
        now = time.monotonic()
        for request_id, token, reason, cached in tokens:
            if stream := self.streams.get(request_id):
                self._account(stream, now, cached)
                stream.queue.put_nowait((token, reason))

    def _account(self, stream: Stream, now: float, cached: int) -> None:
        seen = self.metrics.histograms
        if not stream.made:
            stream.first_at, stream.cached = now, cached
            self.metrics.prompt_tokens += len(stream.ask.prompt)
            self.metrics.cached_tokens += cached
            seen["time_to_first_token_seconds"].observe(now - stream.arrived)
        else:
            seen["inter_token_latency_seconds"].observe(now - stream.last_at)
        stream.made += 1
        stream.last_at = now
        self.metrics.generation_tokens += 1

    def _engine_died(self) -> None:
        self.dead = True
        self.log.warning("core_client.py:817", "[shutdown] MPClient: engine core exited unexpectedly; starting cleanup")
        error = traceback(f"vllm.v1.engine.exceptions.EngineDeadError: {DEAD}")
        self.log.error("async_llm.py:906", f"AsyncLLM output_handler failed.\n{error}")
        for stream in self.streams.values():
            self.log.error("serving.py:500", f"Error in completion stream generator.\n{error}")
            stream.queue.put_nowait(DEAD)
        asyncio.get_running_loop().call_later(self.behaviour.linger_s, self._end_after_death)

    def _end_after_death(self) -> None:
        plain("INFO:     Shutting down\nINFO:     Waiting for application shutdown.")
        plain(f"INFO:     Application shutdown complete.\nINFO:     Finished server process [{os.getpid()}]")
        if not self.ended.done():
            self.ended.set_result(0)

    async def handle(self, exchange: Exchange) -> None:
        """Answer one request."""
        route = ROUTES.get((exchange.method, exchange.path))
        if route is None or (exchange.path in DEV_ROUTES and os.environ.get("VLLM_SERVER_DEV_MODE") != "1"):
            await exchange.answer(404, {"detail": "Not Found"})
            return
        keys = [f"Bearer {key}" for key in self.settings.flags["api-key"] or ()]
        if keys and exchange.path.startswith("/v1") and exchange.headers.get("authorization") not in keys:
            await exchange.answer(401, {"error": "Unauthorized"})
            return
        try:
            await route(self, exchange)
        except Refused as refused:
            await exchange.answer(refused.status, error_body(str(refused), refused.kind, refused.status))
        except ValueError as error:
            await exchange.answer(400, error_body(f"Invalid JSON: {error}", "BadRequestError", 400))

    async def health(self, exchange: Exchange) -> None:
        """200 while the engine process lives."""
        await exchange.answer(503 if (self.dead or self.stopping) and not self.behaviour.health_lies else 200, "")

    async def version(self, exchange: Exchange) -> None:
        """The version that this pretends to be."""
        await exchange.answer(200, {"version": __version__})

    async def models(self, exchange: Exchange) -> None:
        """The served names."""
        names = [self.behaviour.served_as] if self.behaviour.served_as else self.settings.served_names
        await exchange.answer(200, {"object": "list", "data": [self._card(str(name)) for name in names]})

    def _card(self, name: str) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "vllm",
            "root": self.settings.model,
            "parent": None,
            "max_model_len": self.settings.model_len,
            "permission": [],
        }

    async def show_metrics(self, exchange: Exchange) -> None:
        """All counters; none of vLLM's where they were switched off."""
        hidden = self.behaviour.no_metrics or self.settings.flags["disable-log-stats"]
        await exchange.answer(200, "" if hidden else self.metrics.render(), "text/plain; version=1.0.0; charset=utf-8")

    async def reset_prefix_cache(self, exchange: Exchange) -> None:
        """Ask the engine to forget its prefixes."""
        self.conn.send(("reset",))
        await exchange.answer(200, {"success": await self.resets.get()})

    async def server_info(self, exchange: Exchange) -> None:
        """The resolved configuration."""
        await exchange.answer(200, {"vllm_config": resolved_config(self.settings), "vllm_env": {}, "system_env": {}})

    async def tokenize(self, exchange: Exchange) -> None:
        """Token ids of a text."""
        tokens = encode(str(exchange.json().get("prompt", "")), self.settings.vocab)
        await exchange.answer(
            200, {"count": len(tokens), "max_model_len": self.settings.model_len, "tokens": tokens, "token_strs": None}
        )

    async def detokenize(self, exchange: Exchange) -> None:
        """Text of token ids."""
        await exchange.answer(200, {"prompt": decode(list(exchange.json().get("tokens", [])))})

    async def complete(self, exchange: Exchange) -> None:
        """Completions and chat completions, streamed or not."""
        ask = parse(exchange.json(), "chat" in exchange.path, self.settings)
        if self.luck.random() < self.behaviour.http_503:
            raise Refused(503, "The server is overloaded.", "ServiceUnavailableError")
        if self.dead or self.stopping:
            raise Refused(503, DEAD, "InternalServerError")
        self.count += 1
        request_id = f"{'chatcmpl' if ask.chat else 'cmpl'}-{os.getpid():x}-{self.count:x}"
        stream = self.streams[request_id] = Stream(ask, time.monotonic())
        self.conn.send(("add", request_id, ask.prompt, ask.max_tokens))
        try:
            await asyncio.sleep(self.behaviour.slow_s)
            await (self._streamed if ask.stream else self._whole)(exchange, stream, Shaper(ask, request_id, self.model))
        finally:
            self.streams.pop(request_id, None)
            if not self.dead and not self.stopping:
                self.conn.send(("abort", [request_id]))

    async def _next(self, exchange: Exchange, stream: Stream) -> tuple[int, str | None]:
        while True:
            try:
                item = await asyncio.wait_for(stream.queue.get(), 0.2)
            except TimeoutError:
                if exchange.gone:
                    raise ConnectionError("client left") from None
                continue
            if isinstance(item, str):
                raise EngineDead(item)
            return item

    async def _tokens(self, exchange: Exchange, stream: Stream) -> Any:
        """(tokens, reason) as they come, in bursts where asked for; the last one has a reason."""
        short = self.luck.random() < self.behaviour.short_output
        limit = max(1, stream.ask.max_tokens // 2) if short else None
        held: list[int] = []
        since = time.monotonic()
        made = 0
        while True:
            token, reason = await self._next(exchange, stream)
            held += [token] if token >= 0 else []
            made += token >= 0
            reason = reason or ("stop" if limit and made >= limit else None)
            if reason or self._due(made, len(held), since):
                yield held, reason
                held, since = [], time.monotonic()
            if reason:
                self.metrics.finished[reason] += 1
                self._observe_end(stream)
                return

    def _due(self, made: int, held: int, since: float) -> bool:
        """Whether a chunk goes out now: every ``--stream-interval`` tokens, the first one at once."""
        interval = self.settings.flags["stream-interval"]
        return (made == 1 or held >= interval) and time.monotonic() - since >= self.behaviour.burst_s

    def _observe_end(self, stream: Stream) -> None:
        seen = self.metrics.histograms
        seen["e2e_request_latency_seconds"].observe(time.monotonic() - stream.arrived)
        if stream.made > 1:
            tpot = (stream.last_at - stream.first_at) / (stream.made - 1)
            seen["request_time_per_output_token_seconds"].observe(tpot)

    async def _streamed(self, exchange: Exchange, stream: Stream, shaper: Shaper) -> None:
        await exchange.start_stream()
        if stream.ask.chat:
            exchange.event(shaper.role_chunk())
        made = 0
        break_at = stream.ask.max_tokens // 2 if self.luck.random() < self.behaviour.error_chunk else None
        try:
            async for tokens, reason in self._tokens(exchange, stream):
                made += len(tokens)
                exchange.event(shaper.chunk(tokens, reason, self.luck.random() < self.behaviour.lost_tokens))
                await exchange.writer.drain()
                if exchange.gone:
                    raise ConnectionError("client left")
                if break_at is not None and made >= break_at:
                    raise EngineDead("An error occurred in this request only.")
            if stream.ask.usage:
                exchange.event(shaper.usage_chunk(made, stream.cached))
        except EngineDead as error:
            exchange.event(error_body(str(error), "InternalServerError", 500))
        exchange.event("[DONE]")
        await exchange.end_stream()

    async def _whole(self, exchange: Exchange, stream: Stream, shaper: Shaper) -> None:
        tokens: list[int] = []
        reason = "length"
        try:
            async for more, why in self._tokens(exchange, stream):
                tokens += more
                reason = why or reason
        except EngineDead as error:
            raise Refused(500, str(error), "InternalServerError") from None
        await exchange.answer(200, shaper.whole(tokens, reason, stream.cached))

    async def _log_stats(self) -> None:
        last = (0, 0)
        while True:
            await asyncio.sleep(STATS_EVERY_S)
            now = (self.metrics.prompt_tokens, self.metrics.generation_tokens)
            prompt, made = ((b - a) / STATS_EVERY_S for a, b in zip(last, now, strict=True))
            engine, last = self.metrics.engine, now
            self.log.info(
                "loggers.py:335",
                f"Engine 000: Avg prompt throughput: {prompt:.1f} tokens/s, Avg generation throughput: {made:.1f} "
                f"tokens/s, Running: {engine.get('running', 0)} reqs, Waiting: {engine.get('waiting', 0)} reqs, "
                f"GPU KV cache usage: {100 * engine.get('kv_usage', 0):.1f}%, Prefix cache hit rate: 0.0%",
            )


Route = Callable[[Api, Exchange], Awaitable[None]]
ROUTES: dict[tuple[str, str], Route] = {
    ("GET", "/health"): Api.health,
    ("GET", "/ping"): Api.health,
    ("GET", "/version"): Api.version,
    ("GET", "/v1/models"): Api.models,
    ("GET", "/metrics"): Api.show_metrics,
    ("GET", "/server_info"): Api.server_info,
    ("POST", "/reset_prefix_cache"): Api.reset_prefix_cache,
    ("POST", "/tokenize"): Api.tokenize,
    ("POST", "/detokenize"): Api.detokenize,
    ("POST", "/v1/completions"): Api.complete,
    ("POST", "/v1/chat/completions"): Api.complete,
}
DEV_ROUTES = ("/server_info", "/reset_prefix_cache")
