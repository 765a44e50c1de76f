from types import SimpleNamespace
from typing import Any

import pytest

from autotune.space.config import LaunchConfig
from autotune.space.parameters import Parameter, SearchSpace
from autotune.tuner.precision import (
    PrecisionClass,
    as_published,
    at_own_precision,
    changed_precision,
    precision_class,
    unmeasurable,
)

SPACE = SearchSpace(
    "x",
    (
        Parameter("max-num-seqs", (1, 2)),
        Parameter("kv-cache-dtype", (None, "fp8"), precision=True),
    ),
    fixed=LaunchConfig.of({"enforce-eager": True}),
    seeds=(
        LaunchConfig.of({"kv-cache-dtype": "fp8"}),
        LaunchConfig.of({"kv-cache-dtype": "fp8", "max-num-seqs": 2}),
        LaunchConfig.of({"max-num-seqs": 2}),
    ),
)


def test_precision_leaves_the_space_with_its_reason_and_seeds_lose_it() -> None:
    space = at_own_precision(SPACE, "its weights are random")
    assert [p.name for p in space.parameters] == ["max-num-seqs"]
    assert space.seeds == (LaunchConfig.of({"max-num-seqs": 2}),)
    assert space.dropped[0].parameter == "kv-cache-dtype" and "its weights are random" in space.dropped[0].reason


def test_a_config_that_changes_precision_is_named() -> None:
    config = SPACE.fixed.merged(LaunchConfig.of({"kv-cache-dtype": "fp8", "max-num-seqs": 2}))
    assert changed_precision(SPACE, config) == ("kv-cache-dtype",)
    assert changed_precision(SPACE, SPACE.fixed) == ()


def test_a_class_holds_what_decides_what_is_computed_and_nothing_else() -> None:
    plain = LaunchConfig.of({"max-num-seqs": 2, "kv-cache-dtype": "auto", "calculate-kv-scales": False})
    assert precision_class(SPACE, plain) == PrecisionClass() and precision_class(SPACE, plain).key == ""
    one = precision_class(SPACE, LaunchConfig.of({"max-num-seqs": 2, "kv-cache-dtype": "fp8"}))
    two = precision_class(SPACE, LaunchConfig.of({"kv-cache-dtype": "fp8"}))
    assert one == two and str(one) == "--kv-cache-dtype fp8" and one.key


def test_a_backend_is_a_class_at_equal_precision() -> None:
    kernels = precision_class(SPACE, LaunchConfig.of({"attention-backend": "FLASHINFER"}))
    assert not kernels.published and kernels.precision == ()


def test_as_published_leaves_the_limits_alone() -> None:
    config = LaunchConfig.of({"kv-cache-dtype": "fp8", "dtype": "half", "max-num-seqs": 2})
    assert as_published(SPACE, config) == LaunchConfig.of({"enforce-eager": True, "max-num-seqs": 2})


@pytest.mark.parametrize(
    ("demo", "flags", "words"),
    [
        (True, {}, "demonstration model"),
        (False, {"load-format": "dummy"}, "random weights"),
        (False, {"load-format": "auto"}, None),
    ],
)
def test_random_weights_have_no_quality(demo: bool, flags: dict[str, Any], words: str | None) -> None:
    model: Any = SimpleNamespace(demo=demo)
    reason = unmeasurable(model, LaunchConfig.of(flags))
    assert reason is None if words is None else words in str(reason)
