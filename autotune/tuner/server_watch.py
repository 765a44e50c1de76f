"""Watches a server's own metrics while it is loaded, for the second count and for what limits it."""

import threading
from collections.abc import Callable
from statistics import fmean
from types import TracebackType

from autotune.engine.metrics import EngineMetrics
from autotune.load.diagnosis import ServerState
from autotune.load.types import ServerCounters

PERIOD_S = 1.0


class ServerWatch:
    """Scrapes once a second between ``with`` and its end. A scrape that fails is left out. An error, such as Ctrl-C,
    ends it at once, though a scrape may still wait for its answer.

    ``scrape`` returns None where the server has no metrics; then there are no counters and no state. A load that is
    repeated calls ``mark`` whenever one ends: counters and state are those of the last.
    """

    def __init__(self, scrape: Callable[[], EngineMetrics | None], *, period_s: float = PERIOD_S) -> None:
        self._scrape = scrape
        self._period_s = period_s
        self._seen: list[EngineMetrics] = []
        self._starts = [0]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)

    def __enter__(self) -> "ServerWatch":
        self._take()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if kind is None:
            self._thread.join()
            self._take()

    def mark(self) -> None:
        """A load has ended here."""
        self._take()
        self._starts.append(max(0, len(self._seen) - 1))

    @property
    def _last(self) -> list[EngineMetrics]:
        """Scrapes of the last load: from the mark before the last one on."""
        return self._seen[self._starts[-2] if len(self._starts) > 1 else 0 :]

    @property
    def counters(self) -> tuple[ServerCounters, ServerCounters] | None:
        """Counters before and after; None where the server does not tell."""
        if len(self._last) < 2:
            return None
        return server_counters(self._last[0]), server_counters(self._last[-1])

    def state(
        self, *, max_num_seqs: int | None = None, max_num_batched_tokens: int | None = None
    ) -> ServerState | None:
        """Means over the middle half of the load, where it is steady; None where there were too few scrapes."""
        seen = self._last
        n = len(seen)
        middle = seen[n // 4 : n - n // 4] if n >= 4 else []
        if not middle:
            return None
        return ServerState(
            running=fmean(m.running for m in middle),
            waiting=fmean(m.waiting for m in middle),
            kv_usage=max(m.kv_usage for m in middle),
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            preemptions=round(seen[-1].preemptions - seen[0].preemptions),
        )

    def _run(self) -> None:
        while not self._over.wait(self._period_s):
            self._take()

    def _take(self) -> None:
        metrics = self._scrape()
        if metrics is not None:
            self._seen.append(metrics)


def server_counters(metrics: EngineMetrics) -> ServerCounters:
    """The counters of one scrape, as the load room compares them."""
    return ServerCounters(
        prompt_tokens=metrics.prompt_tokens,
        generation_tokens=metrics.generation_tokens,
        prefix_queries=metrics.prefix_queries,
        prefix_hits=metrics.prefix_hits,
        preemptions=metrics.preemptions,
    )
