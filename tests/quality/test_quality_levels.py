"""The decision is on the interval's side, and never asks more than the reference reaches against itself."""

from dataclasses import replace

import pytest

from autotune.errors import UsageError
from autotune.quality.compare import Comparison, Estimate
from autotune.quality.levels import LEVELS, find_level, judge

TINY = LEVELS["tiny"]
ONE, ZERO = Estimate(1, 1, 1), Estimate(0, 0, 0)
SAME = Comparison(2000, 15.0, 15.0, ONE, ZERO, ONE, ZERO, 1.0)


def kl(value: float, low: float, high: float) -> Comparison:
    return replace(SAME, kl=Estimate(value, low, high))


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (SAME, "within"),
        (kl(0.01, 0.008, 0.0199), "within"),
        (kl(0.01, 0.008, 0.0201), "unsure"),
        (kl(0.03, 0.0199, 0.04), "unsure"),
        (kl(0.03, 0.0201, 0.04), "over"),
        (replace(SAME, perplexity_ratio=Estimate(1.01, 1.0, 1.0201)), "unsure"),
        (replace(SAME, perplexity_ratio=Estimate(1.05, 1.0201, 1.1)), "over"),
        (replace(SAME, perplexity_ratio=Estimate(0.9, 0.8, 0.95)), "within"),
        (replace(SAME, decoding_kl=Estimate(0.03, 0.0201, 0.1)), "over"),
        (replace(SAME, decoding_kl=Estimate(0.019, 0.005, 0.1)), "within"),
    ],
)
def test_each_side_of_the_interval_has_its_say(found: Comparison, verdict: str) -> None:
    judged = judge(found, TINY)
    assert judged.verdict == verdict
    assert (judged.excess > 0) == (verdict != "within")


def test_a_noisy_reference_is_not_held_against_the_candidate() -> None:
    noise = kl(0.03, 0.02, 0.04)
    assert judge(kl(0.03, 0.025, 0.039), TINY).verdict == "over"
    assert judge(kl(0.03, 0.025, 0.039), TINY, noise).verdict == "within"


def test_levels_are_ordered_and_even_any_refuses_noise() -> None:
    names = list(LEVELS)
    assert [LEVELS[n].kl for n in names] == sorted(LEVELS[n].kl for n in names)
    assert judge(replace(SAME, kl=Estimate(3.3, 3.0, 3.6)), LEVELS["any"]).verdict == "over"


def test_the_excess_stays_finite() -> None:
    ruined = replace(SAME, perplexity_ratio=Estimate(17000, 15000, 20000))
    assert judge(ruined, TINY).excess == 10.0


def test_an_unknown_level_is_refused_with_those_that_exist() -> None:
    with pytest.raises(UsageError, match=r"unknown.*none, tiny, small, any"):
        find_level("huge")
