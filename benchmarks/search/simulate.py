"""A machine with a simulated clock: boots and points cost the seconds they would cost, and nothing else.

It serves a ``Surface`` (synthetic) or a ``MeasuredTable`` (see ``table.py``) behind the same four questions.
"""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from surface import Surface

from autotune.search.types import Outcome, Suggestion
from autotune.space.config import LaunchConfig

# Seconds on an H200: the imports of a plain boot, and what is left of them in a warm one. The first boot of a run pays
# the first, for its warm server.
IMPORTS_S, WARM_IMPORTS_S = 42.0, 4.0
IMPORTED = "imported"
COMPILE_FLAGS = ("max-num-seqs", "max-num-batched-tokens", "block-size", "kv-cache-dtype", "quantization")


class NotInTable(LookupError):
    """Asked of a measured table, and never measured."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One load: the objective and each SLO's violation as a fraction of its limit."""

    value: float
    violations: dict[str, float]
    seconds: float


class Machine(Protocol):
    """What a replay needs of a table."""

    def boot(self, config: LaunchConfig, warm: set[object], rng: np.random.Generator) -> tuple[bool, float, float]: ...

    def load(
        self, config: LaunchConfig, target: LaunchConfig, boot_noise: float, rng: np.random.Generator
    ) -> Reading: ...

    def boot_noise(self, config: LaunchConfig, rng: np.random.Generator) -> float: ...


class SyntheticMachine:
    """A surface with the boot costs and the noise of ``surface``'s docstring."""

    def __init__(self, surface: Surface) -> None:
        self.surface = surface

    def boot(self, config: LaunchConfig, warm: set[object], rng: np.random.Generator) -> tuple[bool, float, float]:
        """(started, seconds with stop, spare share of memory)."""
        index = self.surface.index(config)
        margin = float(self.surface.margin[index])
        eager = config.get("enforce-eager") is True
        key = tuple(config.get(f) for f in COMPILE_FLAGS)
        weights_gb = self.surface.scenario.params_b * (1.06 if config.get("quantization") else 2.0)
        seconds = (WARM_IMPORTS_S if IMPORTED in warm else IMPORTS_S) + 0.14 * weights_gb + 6
        warm.add(IMPORTED)
        if margin > 0:
            seconds += 0 if eager else 8 + (7 if key in warm else rng.uniform(35, 80))
            warm.add(key)
        else:
            seconds += 0 if eager or key in warm else 20
        return margin > 0, seconds * rng.normal(1, 0.03), margin

    def boot_noise(self, config: LaunchConfig, rng: np.random.Generator) -> float:
        """Log deviation of this engine from its configuration's mean."""
        return float(rng.normal(0, 0.018 * (3 if config.get("enforce-eager") is True else 1)))

    def load(self, config: LaunchConfig, target: LaunchConfig, boot_noise: float, rng: np.random.Generator) -> Reading:
        """One scored load; ``target`` differs from ``config`` where live limits are lowered."""
        s = self.surface
        index, booted = s.index(target), s.index(config)
        log = boot_noise + rng.normal(0, 0.01)
        if index != booted:
            bias = np.random.default_rng((s.scenario.bump_seed, index)).normal(0.0, 0.015)
            tokens = target.get("max-num-batched-tokens") or s.defaults["max-num-batched-tokens"]
            log += bias + (0.09 if int(tokens) <= 1024 else 0.01)
            fewer = min(s.kv_tokens[booted] / max(s.kv_tokens[index], 1), 1.0)
            saturated = s.batch[index] < min(s.scenario.concurrency, int(target.get("max-num-seqs") or 10**6))
            log += float(np.log(fewer)) if saturated else 0.0
        violations = {name: float((1 + v[index]) * np.exp(rng.normal(0, 0.04)) - 1) for name, v in s.violations.items()}
        return Reading(float(s.value[index] * np.exp(log)), violations, float(rng.normal(16, 0.5)))


@dataclass(slots=True)
class Clock:
    """A run's account: seconds, boots, trials; and the engine that is up."""

    machine: Machine
    rng: np.random.Generator
    warm: set[object] = field(default_factory=set)
    seconds: float = 0.0
    boots: int = 0
    trials: int = 0
    crashes: int = 0
    running: LaunchConfig | None = None
    noise: float = 0.0

    def run(self, suggestion: Suggestion) -> Outcome:
        """Boot if the engine is not the right one, then load."""
        boot_s = 0.0
        self.trials += 1
        if not suggestion.live or self.running != suggestion.config:
            started, boot_s, margin = self.boot(suggestion.config)
            if not started:
                self.crashes += 1
                return Outcome("infeasible", margin=max(-margin, 1e-3), cost_s=boot_s, boot_s=boot_s)
        try:
            reading = self.machine.load(suggestion.config, suggestion.target, self.noise, self.rng)
        except NotInTable as error:
            return Outcome("not_measured", reason=str(error), cost_s=boot_s, boot_s=boot_s)
        self.seconds += reading.seconds
        return Outcome(
            "measured",
            value=reading.value,
            violations=reading.violations,
            cost_s=boot_s + reading.seconds,
            boot_s=boot_s,
            fidelity=suggestion.fidelity,
        )

    def boot(self, config: LaunchConfig) -> tuple[bool, float, float]:
        """A new engine in place of the running one."""
        started, boot_s, margin = self.machine.boot(config, self.warm, self.rng)
        self.seconds += boot_s
        self.boots += 1
        self.running = config if started else None
        self.noise = self.machine.boot_noise(config, self.rng)
        return started, boot_s, margin
