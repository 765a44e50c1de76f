import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.space.rules import Comparison, Needs, parse_rule

SIGNS = {
    ">=": lambda a, b: a >= b,
    "<=": lambda a, b: a <= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    ">": lambda a, b: a > b,
    "<": lambda a, b: a < b,
}


@given(st.sampled_from(list(SIGNS)), st.integers(0, 9), st.integers(0, 9))
def test_every_operator_compares_two_flags(sign, left, right):
    rule = parse_rule(f"left-flag {sign} right-flag")
    assert rule.holds({"left-flag": left, "right-flag": right}) == SIGNS[sign](left, right)


@given(st.sampled_from(list(SIGNS)), st.integers(0, 9), st.integers(0, 9))
def test_the_right_side_may_be_a_number(sign, left, right):
    assert parse_rule(f"a{sign}{right}").holds({"a": left}) == SIGNS[sign](left, right)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "a >=",
        ">= b",
        "a => b",
        "a >= b >= c",
        "a >= -1",
        "a + 1 > b",
        "__import__('os') > a",
        "A >= b",
        "1 < a",
    ],
)
def test_anything_else_is_refused_with_the_expected_form(text):
    with pytest.raises(ValueError, match="expected 'FLAG >= FLAG'"):
        parse_rule(text)


@pytest.mark.parametrize("values", [{}, {"a": 1}, {"a": None, "b": 1}, {"a": "x", "b": 1}, {"a": True, "b": 9}])
def test_an_unknown_side_breaks_nothing(values):
    assert parse_rule("a >= b").holds(values)


def test_a_rule_prints_as_it_was_written():
    assert str(parse_rule("a>=b")) == "a >= b"
    assert str(parse_rule("a <= 512")) == "a <= 512"
    assert parse_rule("a >= b") == Comparison("a", ">=", "b")


def test_needs_bind_only_their_own_value():
    need = Needs("backend", "X", {"dtype": (None, "auto")})
    assert need.holds({"backend": "Y", "dtype": "fp8"})
    assert need.holds({"backend": "X"})
    assert not need.holds({"backend": "X", "dtype": "fp8"})
