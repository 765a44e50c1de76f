"""Throughput against latency: what a study over several loads shows.

A *spot* is one configuration under one load, the mean over its points; the frontier holds the spots that no other one
beats in tokens per second, TTFT and TPOT at once. Only own boots count, a configuration's race points before those of
the search, and only loads that met the SLOs and lasted until requests ended (one that is clearly worse may not).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from autotune.report.figures import figure
from autotune.space.config import LaunchConfig
from autotune.store.models import BootRow, RunRow
from autotune.tuner.engines import FINAL
from autotune.tuner.plan import Plan


@dataclass(frozen=True, slots=True)
class Spot:
    """One configuration under one load. ``raced`` says whether the figures come from the final race."""

    config: str
    load: str
    output_tokens_per_s: float
    ttft_ms: float
    tpot_ms: float
    raced: bool

    def beats(self, other: "Spot") -> bool:
        """No worse in anything, better in something."""
        mine = (-self.output_tokens_per_s, self.ttft_ms, self.tpot_ms)
        theirs = (-other.output_tokens_per_s, other.ttft_ms, other.tpot_ms)
        return mine != theirs and all(a <= b for a, b in zip(mine, theirs, strict=True))

    def text(self) -> str:
        """One line for a person."""
        figures = (
            f"{figure(self.output_tokens_per_s)} tok/s, TTFT {figure(self.ttft_ms)} ms, TPOT {figure(self.tpot_ms)} ms"
        )
        return f"{self.load}: {figures}  {self.config}"


def frontier(plan: Plan, record: RunRow) -> list[Spot]:
    """The spots that nothing beats, the fastest answers first."""
    spots = _spots(plan, record)
    best = [spot for spot in spots if not any(other.beats(spot) for other in spots)]
    return sorted(best, key=lambda spot: spot.output_tokens_per_s)


def _spots(plan: Plan, record: RunRow) -> list[Spot]:
    boots: dict[str, list[BootRow]] = {}
    for boot in record.boots:
        if boot.failure is None and boot.points:
            boots.setdefault(boot.config_key, []).append(boot)
    return [spot for group in boots.values() for spot in _of_config(plan, group)]


def _of_config(plan: Plan, boots: Sequence[BootRow]) -> Iterable[Spot]:
    raced = [b for b in boots if b.role == FINAL]
    points = [p for b in raced or boots for p in b.points if not p.live]
    levels = [level for p in points for level in (p.details or {}).get("levels", ()) if _has_latencies(level)]
    changes = LaunchConfig.of(boots[0].flags, boots[0].env).differences(plan.space.fixed)
    name = str(LaunchConfig.of({key: new for key, (_, new) in changes.items() if new is not None}))
    for load in dict.fromkeys(level["load"] for level in levels):
        same = [level for level in levels if level["load"] == load]
        if all(excess <= 0 for level in same for excess in level["violations"].values()):
            yield Spot(
                name,
                load,
                _mean(same, "output_tokens_per_s"),
                _mean(same, "ttft_ms"),
                _mean(same, "tpot_ms"),
                bool(raced),
            )


def _has_latencies(level: dict[str, Any]) -> bool:
    return all(level["measurement"][metric]["n"] > 0 for metric in ("ttft_ms", "tpot_ms"))


def _mean(levels: Sequence[dict[str, Any]], name: str) -> float:
    return fmean(level[name] for level in levels)
