"""A running engine: what it is asked while it serves, and how it ends."""

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from autotune.engine import probe, procfs
from autotune.engine.environment import HOST
from autotune.engine.failures import Failure, classify
from autotune.engine.logs import BootPhase
from autotune.engine.metrics import EngineMetrics, parse_metrics
from autotune.engine.probe import ProbeError
from autotune.engine.process import TERM_GRACE_S, Family
from autotune.engine.types import BootReport, EngineSpec, StopReport

STALL_S = 30.0
END_S = 10.0


def scrape(port: int) -> EngineMetrics:
    """Read the counters of the engine on the port. Raises ``ProbeError`` where it does not answer."""
    answer = probe.ask(port, "/metrics")
    if answer.status != 200:
        raise ProbeError(f"/metrics answered HTTP {answer.status}")
    try:
        return parse_metrics(answer.body.decode(errors="replace"))
    except ValueError as error:
        raise ProbeError(f"/metrics cannot be read: {error}") from error


class Engine:
    """One booted engine. Use it as a context manager, or call ``stop``: nothing else ends it.

    ``base_url`` and ``model_name`` are what a load client needs, ``report`` is how the boot went.
    """

    def __init__(self, spec: EngineSpec, family: Family, port: int, model_name: str, report: BootReport) -> None:
        self.spec = spec
        self.port = port
        self.model_name = model_name
        self.report = report
        self._family = family
        self._resolved: Mapping[str, Any] | None = None
        self._stopped: StopReport | None = None
        self._oom_kills_before = procfs.oom_kills()
        self._progress: tuple[float, float, float] | None = None
        self._progress_at = time.monotonic()

    @property
    def base_url(self) -> str:
        """Where it listens, without a path."""
        return f"http://{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        """The API server's process number."""
        return self._family.leader.id.pid

    @property
    def engine_id(self) -> str:
        """The id that all its processes carry in their environment."""
        return self._family.engine_id

    def pids(self) -> tuple[int, ...]:
        """All its running processes."""
        return tuple(sorted(stat.pid for stat in self._family.members()))

    def alive(self) -> bool:
        """Whether the API server's process runs. It outlives a dead engine process by some seconds."""
        return self._stopped is None and self._family.leader.poll() is None

    def metrics(self) -> EngineMetrics:
        """Scrape the counters. Raises ``ProbeError`` where the engine does not answer."""
        return scrape(self.port)

    def resolved_config(self) -> Mapping[str, Any]:
        """The configuration that vLLM settled on: sections such as ``cache_config``, each a mapping.

        The first call takes about two seconds, because vLLM describes its whole environment with it. Empty
        where this version cannot be asked.
        """
        if self._resolved is None:
            answer = probe.ask(self.port, "/server_info?config_format=json", limit_s=120.0)
            config = answer.json().get("vllm_config") if answer.status == 200 else None
            self._resolved = config if isinstance(config, dict) else {}
        return self._resolved

    def reset_prefix_cache(self, limit_s: float = 10.0) -> bool:
        """Empty the prefix cache; it refuses while requests hold blocks, so ask until ``limit_s`` is over."""
        deadline = time.monotonic() + limit_s
        while True:
            answer = probe.ask(self.port, "/reset_prefix_cache", method="POST")
            # Versions before the answer had a body reset without a word.
            if answer.status == 200 and (not answer.body or answer.json().get("success", True)):
                return True
            if answer.status in (404, 405) or time.monotonic() > deadline:
                return False
            time.sleep(0.1)

    def watchdog(self) -> Failure | None:
        """Look whether the engine died or hangs; to be called every few seconds while load runs.

        A hang is: requests pending, and for 30 s neither a token generated, nor a prompt finished, nor a
        change of the KV cache's fill, or no answer to the question itself.
        """
        if not self.alive():
            return self.failure()
        if not self._stalled(time.monotonic()):
            return None
        line = f"no token for {STALL_S:.0f} s while requests were pending"
        return Failure.of("run_hang", phase=BootPhase.SERVING, line=line)

    def _stalled(self, now: float) -> bool:
        try:
            seen = self.metrics()
        except ProbeError:
            return now - self._progress_at > STALL_S
        progress = (seen.generation_tokens, seen.prompt_tokens, seen.kv_usage)
        if seen.pending == 0 or progress != self._progress:
            self._progress, self._progress_at = progress, now
        return now - self._progress_at > STALL_S

    def failure(self) -> Failure | None:
        """Why the engine ended although nobody asked it to; None while it runs, and after ``stop``."""
        if self._stopped is not None or (code := self._family.leader.poll()) is None:
            return None
        before, now = self._oom_kills_before, procfs.oom_kills()
        oom_kills = None if before is None or now is None else now - before
        found = classify(self.spec.log_path, exit_code=code, stop_requested=False, oom_kills=oom_kills)
        return found or Failure.of("exited", phase=BootPhase.SERVING, exit_code=code)

    def verdict(self, limit_s: float = END_S) -> Failure | None:
        """Why the engine serves no more, None where it is healthy; for use after a load that went wrong.

        An API server outlives its engine process by seconds, in which it answers 503 and has no exit code
        yet: its end is waited for, up to ``limit_s``.
        """
        deadline = time.monotonic() + limit_s
        while self.alive():
            try:
                answer = f"/health answered HTTP {(status := probe.ask(self.port, '/health').status)}"
                if status == 200:
                    return None
            except ProbeError as error:
                answer = str(error)
            if time.monotonic() > deadline:
                return Failure.of("engine_died", phase=BootPhase.SERVING, line=answer)
            time.sleep(0.1)
        return self.failure()

    def stop(self, grace_s: float = TERM_GRACE_S) -> StopReport:
        """End all its processes; running requests are cut off. Safe to call again."""
        if self._stopped is None or self._stopped.survivors:
            self._stopped = self._family.stop(grace_s)
        return self._stopped

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
