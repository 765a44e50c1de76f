"""A/A: studies of a space in which nothing matters, with measured noise, must end in "keep the default"."""

import math
from statistics import fmean

import numpy as np

from autotune.search.domain import Domain
from autotune.search.noise import noise_floor
from autotune.search.race import Race, Runner
from autotune.search.study import StudySearcher, open_study
from autotune.search.surrogate import SurrogateSampler
from autotune.search.types import Outcome
from autotune.space.parameters import Parameter, SearchSpace

STUDIES, TRIALS, FINALISTS = 20, 6, 2
# Between boots of one configuration, between loads of one boot (measured on vLLM).
BETWEEN, WITHIN = 0.018, 0.01
SPACE = SearchSpace(
    "nothing matters",
    (
        Parameter("a", (None, 1, 2, 4, 8), ordered=True),
        Parameter("b", (None, "x", "y")),
        Parameter("c", (None, True)),
    ),
)


def test_a_space_in_which_nothing_matters_keeps_the_default() -> None:
    kept = sum(study(seed) is None for seed in range(STUDIES))
    assert kept >= 19


def study(seed: int) -> str | None:
    """Search, race; the key of a configuration that was crowned, None where the default stayed."""
    rng = np.random.default_rng(seed)
    domain = Domain(SPACE)
    searcher = StudySearcher(
        open_study(f"aa-{seed}", None, "maximize"), domain, SurrogateSampler(domain, "maximize"), seed=seed
    )
    blocks: list[float] = []
    for _ in range(TRIALS):
        suggestion = searcher.ask()
        if suggestion is None:
            break
        boot = rng.normal(0, BETWEEN)
        loads = [1000 * math.exp(boot + rng.normal(0, WITHIN)) for _ in range(3 if not blocks else 1)]
        blocks = blocks or loads
        searcher.tell(suggestion, Outcome("measured", value=fmean(loads), value_se=10.0, cost_s=30.0, boot_s=20.0))
    finalists = [
        Runner(o.suggestion.target.key(), len(o.suggestion.target.flags)) for o in searcher.finalists(FINALISTS)
    ]
    race = Race(Runner("default", 0), finalists, noise=noise_floor([blocks]))
    while (visit := race.next()) is not None:
        race.record(visit, 1000 * math.exp(rng.normal(0, math.hypot(BETWEEN, WITHIN))))
    return race.result().winner
