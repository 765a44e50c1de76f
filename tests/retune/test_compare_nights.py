"""Replayed nights: how often a quiet one raises an alarm, how surely a regression is seen.

The noise is what was measured: 1.8 % between boots of graph configurations on one H200 (and that is the prior of the
search), less on a quiet machine, more on a loud one. A round's drift moves all arms alike.
"""

import math

import numpy as np
import pytest

from autotune.retune.compare import MAX_ROUNDS, Comparison, Contrast

BOOT_NOISE = 0.018
DRIFT = 0.05


def night(rng: np.random.Generator, change: float, noise: float = BOOT_NOISE, arms: int = 3) -> Contrast:
    truth = {"old": 1.0, "new": 1.0 + change, "default": 0.7}
    comparison = Comparison(list(truth)[:arms])
    while True:
        number, drift = comparison.rounds, rng.normal(0, DRIFT)
        for arm in comparison.order(number):
            comparison.record(arm, number, 1000 * truth[arm] * math.exp(drift + rng.normal(0, noise)))
        found = comparison.contrast("new", "old")
        if found.answer != "undecided" or comparison.full:
            return found


@pytest.mark.parametrize("noise", [0.006, 0.012, BOOT_NOISE])
@pytest.mark.parametrize("arms", [2, 3])
def test_thirty_quiet_nights_raise_at_most_one_alarm(noise: float, arms: int) -> None:
    rng = np.random.default_rng(30)
    answers = [night(rng, 0.0, noise, arms).answer for _ in range(30)]
    assert answers.count("slower") + answers.count("faster") <= 1
    assert answers.count("equal") >= 27


def test_a_thousand_quiet_nights_keep_the_promised_risk() -> None:
    rng = np.random.default_rng(31)
    answers = [night(rng, 0.0).answer for _ in range(600)]
    assert answers.count("slower") <= 0.01 * 600 + 4 and answers.count("faster") <= 0.01 * 600 + 4


@pytest.mark.parametrize("arms", [2, 3])
def test_a_regression_of_five_per_cent_is_seen_in_95_of_100_nights(arms: int) -> None:
    rng = np.random.default_rng(32)
    answers = [night(rng, -0.05, arms=arms).answer for _ in range(200)]
    assert answers.count("slower") >= 190


@pytest.mark.parametrize("change", [-0.10, -0.30])
def test_large_regressions_are_seen_on_a_noisy_machine_too(change: float) -> None:
    rng = np.random.default_rng(33)
    assert [night(rng, change, noise=0.03).answer for _ in range(40)].count("slower") >= 39


def test_a_loud_machine_is_told_undecided_and_never_equal_by_luck() -> None:
    rng = np.random.default_rng(34)
    answers = [night(rng, -0.05, noise=0.06).answer for _ in range(60)]
    assert answers.count("equal") <= 3 and "undecided" in answers


def test_an_upgrade_that_is_faster_is_adopted_and_the_interval_holds_the_truth() -> None:
    rng = np.random.default_rng(35)
    found = [night(rng, 0.08) for _ in range(40)]
    assert [f.answer for f in found].count("faster") >= 39
    assert sum(f.low <= 0.08 <= f.high for f in found) >= 39


def test_smaller_is_better_turns_the_sign() -> None:
    comparison = Comparison(["old", "new"], sign=-1.0)
    for number in range(4):
        comparison.record("old", number, 100.0 + number)
        comparison.record("new", number, 120.0 + number)
    assert comparison.contrast("new", "old").answer == "slower"


def test_no_more_rounds_than_promised_and_never_a_word_on_too_few() -> None:
    comparison = Comparison(["old", "new"])
    for number in range(2):
        comparison.record("old", number, 100.0)
        comparison.record("new", number, 50.0)
    assert comparison.contrast("new", "old").answer == "undecided"
    assert night(np.random.default_rng(1), 0.02, noise=0.1).rounds <= MAX_ROUNDS
    with pytest.raises(ValueError, match="positive"):
        comparison.record("old", 2, 0.0)
