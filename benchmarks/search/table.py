"""Measured tables: the same replay on numbers from a real GPU.

A table is a JSON Lines file. The first line describes the scenario, every other line is one boot or one load:

    {"kind": "scenario", "name": "h200-qwen3-14b", "slo": {"itl_p99_ms": 120.0},
     "parameters": [{"name": "max-num-seqs", "values": [64, 256, 1024], "scope": "live", "ordered": true}, …],
     "defaults": {"max-num-seqs": 1024}}
    {"kind": "boot", "flags": {"quantization": "fp8"}, "started": true, "cold_s": 141.0, "hot_s": 66.0}
    {"kind": "boot", "flags": {"gpu-memory-utilization": 0.99}, "started": false, "cold_s": 55.0, "margin": 0.02}
    {"kind": "load", "flags": {…as booted…}, "live": {"max-num-seqs": 256}, "boot": 0, "value": 8239.0,
     "metrics": {"itl_p99_ms": 87.0}, "seconds": 16.0}

Rows of another kind are notes, and loads with ``problems`` count for nothing. ``flags`` name only what differs from
vLLM's defaults. ``boot`` numbers the engines of equal flags, so that a replay can draw a boot first and then its loads:
noise between boots stays noise between boots. The last replicate of every configuration is held out: it is the truth
that scores a run, and no search ever sees it (one replicate only: it is both, and the report says so). A search may
only propose what the table holds; ``covers`` answers that.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from simulate import NotInTable, Reading

from autotune.search.types import Feasibility
from autotune.space.config import LaunchConfig
from autotune.space.parameters import Parameter, SearchSpace


@dataclass(slots=True)
class MeasuredTable:
    """A scenario with its boots and loads by configuration."""

    name: str
    space: SearchSpace
    defaults: Mapping[str, Any]
    slo: Mapping[str, float]
    boots: dict[LaunchConfig, Mapping[str, Any]] = field(default_factory=dict)
    loads: dict[LaunchConfig, dict[int, list[Mapping[str, Any]]]] = field(default_factory=dict)
    live: dict[LaunchConfig, list[Mapping[str, Any]]] = field(default_factory=dict)

    def covers(self, config: LaunchConfig) -> bool:
        """Whether an own boot of the config was measured (or seen to fail)."""
        return config in self.loads or not self.boots.get(config, {"started": True})["started"]

    @property
    def slo_names(self) -> tuple[str, ...]:
        return tuple(self.slo)

    def feasible(self, config: LaunchConfig) -> Feasibility:
        """Keeps a search inside the table; it foresees no failure."""
        return Feasibility(self.covers(config), "not in the table")

    def share(self, config: LaunchConfig | None) -> float:
        """Held-out value of a choice over the best; 0 where it does not start or misses an SLO."""
        if config not in self.loads:
            return 0.0
        value, meets = self.truth(config)
        return value / self.best() if meets else 0.0

    def shuffled(self, rng: np.random.Generator, planner: bool) -> Iterator[LaunchConfig]:
        """All configurations in random order; ``planner`` knows those that did not start."""
        known = [c for c in self.boots if self.covers(c) and (c in self.loads or not planner)]
        return (known[int(i)] for i in rng.permutation(len(known)))

    def rules_of_thumb(self) -> list[LaunchConfig]:
        """The space's seeds."""
        return list(self.space.seeds)

    def boot(self, config: LaunchConfig, warm: set[object], rng: np.random.Generator) -> tuple[bool, float, float]:
        """(started, seconds, spare share of memory); hot once the same configuration was compiled."""
        row = self.boots[config]
        seconds = float(row["hot_s"] if config in warm and "hot_s" in row else row["cold_s"])
        warm.add(config)
        return bool(row["started"]), seconds, -float(row.get("margin", 0.0))

    def boot_noise(self, config: LaunchConfig, rng: np.random.Generator) -> float:
        """Which of the measured engines this boot replays (its number, as a float)."""
        numbers = sorted(self.loads.get(config, {0: []}))
        return float(numbers[int(rng.integers(len(numbers)))])

    def load(self, config: LaunchConfig, target: LaunchConfig, boot_noise: float, rng: np.random.Generator) -> Reading:
        """One measured load of the drawn engine."""
        if target != config and target not in self.live:
            raise NotInTable(f"no live point {target}")
        rows = self.live[target] if target != config else self._seen(config, int(boot_noise))
        row = rows[int(rng.integers(len(rows)))]
        return Reading(float(row["value"]), self._violations(row), float(row.get("seconds", 16.0)))

    def truth(self, config: LaunchConfig) -> tuple[float, bool]:
        """Held-out value and whether it meets every SLO."""
        row = self.loads[config][max(self.loads[config])][-1]
        return float(row["value"]), all(v <= 0 for v in self._violations(row).values())

    def best(self) -> float:
        """Best held-out value that meets every SLO."""
        scored = [self.truth(config) for config in self.loads]
        return max((value for value, meets in scored if meets), default=0.0)

    def _seen(self, config: LaunchConfig, number: int) -> list[Mapping[str, Any]]:
        rows = self.loads[config][number]
        return rows[:-1] if number == max(self.loads[config]) and len(rows) > 1 else rows

    def _violations(self, row: Mapping[str, Any]) -> dict[str, float]:
        return {name: float(row["metrics"][name]) / limit - 1 for name, limit in self.slo.items()}


def read(path: Path) -> MeasuredTable:
    """A table from its file. Raises ValueError where the first line is no scenario or a load has no boot."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    if not rows or rows[0].get("kind") != "scenario":
        raise ValueError(f"{path}: the first line must describe the scenario")
    head = rows[0]
    parameters = tuple(
        Parameter(p["name"], tuple(p["values"]), p.get("scope", "boot"), p.get("ordered", False))
        for p in head["parameters"]
    )
    table = MeasuredTable(head["name"], SearchSpace(head["name"], parameters), head["defaults"], head.get("slo", {}))
    _fill(table, rows[1:])
    missing = [str(config) for config in table.loads if config not in table.boots]
    if missing:
        raise ValueError(f"{path}: loads without a boot: {missing[:3]}")
    return table


def _fill(table: MeasuredTable, rows: Iterable[Mapping[str, Any]]) -> None:
    own: dict[LaunchConfig, dict[int, list[Mapping[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    live: dict[LaunchConfig, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        config = LaunchConfig.of(row["flags"])
        if row["kind"] == "boot":
            table.boots[config] = row
        elif row["kind"] != "load" or row.get("problems"):
            continue
        elif row.get("live"):
            live[config.merged(LaunchConfig.of(row["live"]))].append(row)
        else:
            own[config][int(row.get("boot", 0))].append(row)
    table.loads, table.live = {c: dict(b) for c, b in own.items()}, dict(live)
