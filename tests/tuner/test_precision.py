from autotune.space.config import LaunchConfig
from autotune.space.parameters import Parameter, SearchSpace
from autotune.tuner.precision import at_own_precision, changed_precision

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
    space = at_own_precision(SPACE)
    assert [p.name for p in space.parameters] == ["max-num-seqs"]
    assert space.seeds == (LaunchConfig.of({"max-num-seqs": 2}),)
    assert space.dropped[0].parameter == "kv-cache-dtype" and "quality is not measured" in space.dropped[0].reason


def test_a_config_that_changes_precision_is_named() -> None:
    config = SPACE.fixed.merged(LaunchConfig.of({"kv-cache-dtype": "fp8", "max-num-seqs": 2}))
    assert changed_precision(SPACE, config) == ("kv-cache-dtype",)
    assert changed_precision(SPACE, SPACE.fixed) == ()
