"""Other checkpoints as a search dimension: what is accepted, and what becomes of the space and the plan."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.engine.demo_model import write_demo_model
from autotune.errors import UsageError
from autotune.search.domain import Domain
from autotune.space.config import LaunchConfig
from autotune.space.parameters import Parameter, SearchSpace
from autotune.tuner.feasible import Feasible
from autotune.tuner.models import ModelChoice, choose_model
from autotune.tuner.precision import precision_class
from autotune.tuner.variants import choose_variants, with_variants

SPACE = SearchSpace(
    "x", (Parameter("max-num-seqs", (1, None)), Parameter("quantization", (None, "fp8"), precision=True))
)


@pytest.fixture
def models(tmp_path: Path) -> tuple[ModelChoice, str]:
    """The model, and a folder with another checkpoint of it."""
    base = choose_model(str(write_demo_model(tmp_path / "base")))
    return base, str(write_demo_model(tmp_path / "awq"))


def test_a_variant_is_tried_early_and_never_quantized_once_more(models: tuple[ModelChoice, str]) -> None:
    base, awq = models
    space = with_variants(SPACE, choose_variants(base, [awq]))
    assert space.seeds[0] == LaunchConfig.of({"model": awq})
    domain = Domain(space)
    both = domain.config({"model": awq, "quantization": "fp8", "max-num-seqs": None})
    assert both == LaunchConfig.of({"model": awq})
    assert str(precision_class(space, both)) == f"--model {awq}"


def test_another_model_and_the_model_itself_are_no_variants(models: tuple[ModelChoice, str], tmp_path: Path) -> None:
    base, awq = models
    with pytest.raises(UsageError, match="is the model itself"):
        choose_variants(base, [base.serve])
    config = json.loads((Path(awq) / "config.json").read_text())
    (Path(awq) / "config.json").write_text(json.dumps({**config, "vocab_size": 32000}))
    with pytest.raises(UsageError, match="vocab size is 32000, not 4096"):
        choose_variants(base, [awq])


def test_each_checkpoint_has_its_own_memory(models: tuple[ModelChoice, str]) -> None:
    base, awq = models
    variants = choose_variants(base, [awq])
    plan: Any = SimpleNamespace(
        space=with_variants(SPACE, variants),
        device=SimpleNamespace(kind="cpu", total_bytes=2**34),
        model=base,
        variants=variants,
        install=SimpleNamespace(version="0.32.0"),
        model_of=lambda config: variants.get(str(config.get("model")), base),
    )
    feasible = Feasible(plan, Domain(plan.space), None)
    assert feasible(LaunchConfig.of({"model": awq})).fits
    assert set(feasible._memory) == {base.serve, awq}
