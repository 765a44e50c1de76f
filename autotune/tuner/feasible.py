"""What can be ruled out before a boot: the space's rules, and memory that is surely not there.

Rules are arithmetic on what the engine would use. Memory is predicted from the model's shape and from every
boot so far, good or failed, and only what is impossible beyond its margin is left out: a prediction never
decides between configurations that might run.
"""

from autotune.engine.failures import Failure
from autotune.engine.logs import BootFacts
from autotune.engine.memory import MemoryModel
from autotune.engine.model_shape import ModelShape, read_model_shape
from autotune.search.domain import Domain
from autotune.search.types import Feasibility
from autotune.space.config import LaunchConfig
from autotune.space.parameters import SearchSpace
from autotune.tuner.plan import Plan
from autotune.tuner.variants import VARIANT


class Feasible:
    """A predictor for the search that learns from boots."""

    def __init__(self, plan: Plan, domain: Domain, shape: ModelShape | None) -> None:
        self._space: SearchSpace = plan.space
        self._domain = domain
        self._device = plan.device
        self._plan = plan
        self._memory = {plan.model.serve: MemoryModel(plan.model.serve, plan.install.version, shape)}

    def __call__(self, config: LaunchConfig, /) -> Feasibility:
        broken = self._space.broken_rule(self._domain.assignment(config))
        if broken:
            return Feasibility(False, broken)
        predicted = self._model(config).predict(
            self._resolved(config), total_bytes=self._device.total_bytes, device=self._device.kind
        )
        return Feasibility(not predicted.surely_impossible, predicted.why)

    def booted(self, facts: BootFacts, config: LaunchConfig) -> None:
        """An engine came up; what it printed calibrates the memory model."""
        learned = self._model(config).calibrated(facts, self._resolved(config), total_bytes=self._device.total_bytes)
        self._memory[self._plan.model_of(config).serve] = learned

    def failed(self, failure: Failure, config: LaunchConfig) -> None:
        """A boot failed; a failure for memory says what was missing."""
        learned = self._model(config).after_failure(
            failure, self._resolved(config), total_bytes=self._device.total_bytes
        )
        self._memory[self._plan.model_of(config).serve] = learned

    def _model(self, config: LaunchConfig) -> MemoryModel:
        """What is known about the memory of the checkpoint that ``config`` serves."""
        chosen = self._plan.model_of(config)
        if chosen.serve not in self._memory:
            shape = read_model_shape(chosen.folder) if chosen.folder else None
            self._memory[chosen.serve] = MemoryModel(chosen.serve, self._plan.install.version, shape)
        return self._memory[chosen.serve]

    def _resolved(self, config: LaunchConfig) -> LaunchConfig:
        return self._space.fixed.merged(config).without(VARIANT)
