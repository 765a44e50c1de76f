from hypothesis import given
from hypothesis import strategies as st

from autotune.space.config import LaunchConfig
from autotune.space.defaults import Defaults
from autotune.space.parameters import Parameter, SearchSpace
from autotune.space.rules import Needs, parse_rule

SPACE = SearchSpace(
    name="s",
    parameters=(
        Parameter("max-num-seqs", (64, None, 512), scope="live", ordered=True),
        Parameter("max-num-batched-tokens", (128, None, 8192), scope="live", ordered=True),
        Parameter("enforce-eager", (None, True)),
        Parameter("performance-mode", (None, "interactivity"), requires={"enforce-eager": (None,)}),
        Parameter("attention-backend", (None, "FLASH_ATTN")),
        Parameter("kv-cache-dtype", (None, "fp8"), precision=True),
    ),
    fixed=LaunchConfig.of({"max-model-len": 768}),
    rules=(parse_rule("max-num-batched-tokens >= max-num-seqs"),),
    needs=(Needs("attention-backend", "FLASH_ATTN", {"kv-cache-dtype": (None,)}),),
    vllm_defaults=Defaults(seqs=256, tokens=2048, stated={"enforce-eager": False}),
)
ASSIGNMENTS = st.fixed_dictionaries({p.name: st.sampled_from(p.values) for p in SPACE.parameters})


@given(ASSIGNMENTS)
def test_config_holds_exactly_the_active_values_that_are_set(chosen):
    flags = dict(SPACE.config(chosen).flags)
    active = {p.name for p in SPACE.parameters if p.active(chosen)}
    assert flags == {name: v for name, v in chosen.items() if v is not None and name in active}


@given(ASSIGNMENTS)
def test_effective_is_stable_and_contains_the_fixed_flags(chosen):
    effective = SPACE.effective(SPACE.config(chosen))
    assert SPACE.effective(effective) == effective
    assert effective.get("max-model-len") == 768


@given(ASSIGNMENTS)
def test_rules_are_judged_on_what_the_engine_would_use(chosen):
    seqs, tokens = chosen["max-num-seqs"], chosen["max-num-batched-tokens"] or 2048
    clash = seqs is not None and tokens < seqs
    fp8_clash = chosen["attention-backend"] == "FLASH_ATTN" and chosen["kv-cache-dtype"] == "fp8"
    assert (SPACE.broken_rule(chosen) is not None) == (clash or fp8_clash)


def test_an_unset_limit_follows_the_other_and_breaks_no_rule():
    assert SPACE.broken_rule({"max-num-batched-tokens": 128}) is None
    assert SPACE.broken_rule({"max-num-batched-tokens": 128, "max-num-seqs": 512}) == (
        "max-num-batched-tokens >= max-num-seqs"
    )


def test_a_broken_need_says_which_value_needs_what():
    chosen = {"attention-backend": "FLASH_ATTN", "kv-cache-dtype": "fp8"}
    assert SPACE.broken_rule(chosen) == "attention-backend FLASH_ATTN needs kv-cache-dtype in [default]"


def test_inactive_parameters_are_left_out():
    assert SPACE.config({"enforce-eager": True, "performance-mode": "interactivity"}) == LaunchConfig.of(
        {"enforce-eager": True}
    )


def test_requirements_tell_true_from_one():
    parameter = Parameter("a", (1,), requires={"b": (1,)})
    assert parameter.active({"b": 1})
    assert not parameter.active({"b": True})


def test_defaults_name_the_fixed_value_before_vllms():
    space = SearchSpace(
        "s", (), LaunchConfig.of({"enforce-eager": True}), vllm_defaults=Defaults(stated={"enforce-eager": False})
    )
    assert space.defaults["enforce-eager"] is True
