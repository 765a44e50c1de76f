"""What evidence means: every verdict, and the cases that tempt to a wrong one."""

import math

import pytest

from autotune.retune.compare import Comparison
from autotune.retune.night import DEFAULT, FOUND, NEW, OLD, Evidence
from autotune.retune.verdict import against_record, decide
from autotune.space.config import LaunchConfig
from autotune.store.recommendation import Interval

RECORD = Interval(100.0, 98.0, 102.0)


def played(rounds: int = 5, **values: float) -> Comparison:
    names = {"old": OLD, "new": NEW, "default": DEFAULT, "found": FOUND}
    comparison = Comparison([names[name] for name in values])
    for number in range(rounds):
        for place, (name, value) in enumerate(values.items()):
            comparison.record(names[name], number, value * (1 + 0.004 * math.sin(3 * number + place)))
    return comparison


def evidence(upgrade: Comparison, confirmed: Comparison | None = None) -> Evidence:
    arms = dict.fromkeys([OLD, NEW, DEFAULT, FOUND], LaunchConfig())
    return Evidence(upgrade, arms, confirmed)


@pytest.mark.parametrize(
    ("values", "verdict", "winner"),
    [
        ({"old": 100, "new": 100, "default": 70}, "equal", None),
        ({"old": 100, "new": 90, "default": 70}, "hold", None),
        ({"old": 100, "new": 112, "default": 70}, "adopt", NEW),
        ({"old": 100, "new": 100, "default": 115}, "adopt-new-config", DEFAULT),
        # The default beats the incumbent on the new version, and both are slower than what runs now.
        ({"old": 100, "new": 80, "default": 90}, "hold", None),
        ({"old": 100, "new": 90, "default": 104}, "adopt-new-config", DEFAULT),
    ],
)
def test_the_first_rounds_alone(values: dict[str, float], verdict: str, winner: str | None) -> None:
    found = decide(evidence(played(**values)), RECORD)
    assert (found.verdict, found.winner) == (verdict, winner)


@pytest.mark.parametrize(
    ("confirmed", "verdict"),
    [
        ({"old": 100, "new": 90, "found": 108}, "adopt-new-config"),
        ({"old": 100, "new": 90, "found": 96}, "hold"),
        ({"old": 100, "new": 90, "found": 90}, "hold"),
    ],
)
def test_what_a_search_found_must_beat_the_incumbent_and_not_lose_to_today(
    confirmed: dict[str, float], verdict: str
) -> None:
    found = decide(evidence(played(old=100, new=90, default=70), played(**confirmed)), RECORD)
    assert found.verdict == verdict and (found.winner == FOUND) == (verdict == "adopt-new-config")


def test_a_version_that_the_incumbent_does_not_run_on_is_held_unless_its_default_is_as_good() -> None:
    worse, as_good = evidence(played(old=100, default=70)), evidence(played(old=100, default=101))
    for each in (worse, as_good):
        each.failed[NEW] = "kv_cache_too_small"
    assert decide(worse, RECORD).verdict == "hold" and "kv_cache_too_small" in decide(worse, RECORD).reasons[0]
    assert (decide(as_good, RECORD).verdict, decide(as_good, RECORD).winner) == ("adopt-new-config", DEFAULT)


def test_an_incumbent_that_gave_no_figure_is_neither_held_nor_replaced() -> None:
    for default in (70, 120):
        silent = evidence(played(old=100, default=default))
        silent.unmeasured[NEW] = "not measured: the client fell behind"
        found = decide(silent, RECORD)
        assert (found.verdict, found.winner) == ("undecided", None) and "the client fell behind" in found.reasons[0]


def test_two_rounds_decide_nothing() -> None:
    assert decide(evidence(played(2, old=100, new=50, default=70)), RECORD).verdict == "undecided"
    assert decide(evidence(Comparison([OLD, NEW])), RECORD).verdict == "undecided"


@pytest.mark.parametrize(
    ("new", "answer"), [(100, "equal"), (97, "equal"), (103, "equal"), (85, "slower"), (118, "faster")]
)
def test_against_a_record_only_large_differences_count(new: float, answer: str) -> None:
    assert against_record(played(3, new=new, default=70), NEW, RECORD).answer == answer


def test_a_record_with_a_wide_interval_proves_nothing() -> None:
    assert against_record(played(3, new=100, default=70), NEW, Interval(100, 50, 200)).answer == "undecided"


def test_without_a_record_or_an_old_version_nothing_is_decided() -> None:
    assert decide(evidence(played(new=100, default=70)), None).verdict == "undecided"
