"""What can be ruled out before a boot: the space's rules, by arithmetic on what the engine would use."""

from autotune.search.domain import Domain
from autotune.search.types import Feasibility
from autotune.space.config import LaunchConfig
from autotune.space.parameters import SearchSpace


class RulePredictor:
    """Says "does not fit" only where a rule of the space is broken; measurements decide the rest."""

    def __init__(self, space: SearchSpace, domain: Domain) -> None:
        self._space = space
        self._domain = domain

    def __call__(self, config: LaunchConfig, /) -> Feasibility:
        broken = self._space.broken_rule(self._domain.assignment(config))
        return Feasibility(broken is None, broken or "")
