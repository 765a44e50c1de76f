import math

import numpy as np
import pytest

from autotune.search.budget import Budget
from autotune.search.noise import PRIOR, noise_floor
from autotune.search.race import Race, Runner

BASE = Runner("default", 0)


def play(race, value):
    visits = []
    while (visit := race.next()) is not None:
        visits.append(visit)
        race.record(visit, value(visit))
    return visits


def noisy(rng, sigma, gains):
    drift = {}

    def value(visit):
        drift.setdefault(visit.round, rng.normal(0, 0.05))
        return 100 * (1 + gains.get(visit.runner, 0.0)) * math.exp(drift[visit.round] + rng.normal(0, sigma))

    return value


def test_rounds_alternate_and_everyone_gets_two_boots():
    race = Race(BASE, [Runner("a", 1), Runner("b", 2)])
    visits = play(race, lambda v: {"default": 100.0, "a": 150.0, "b": 120.0}[v.runner])
    assert [v.runner for v in visits] == ["default", "a", "b", "b", "a", "default"]
    result = race.result()
    assert (result.verdict, result.winner) == ("adopt", "a")
    best = result.standings[0]
    assert best.gain == pytest.approx(0.5) and best.low < 0.5 < best.high


def rounds_until_decided(gain, disturbed):
    race = Race(BASE, [Runner("a", 1)])
    if disturbed:
        race.disturb()
    play(race, lambda v: 100.0 * (1 + gain if v.runner == "a" else 1))
    return race.result().verdict, race.result().rounds


def test_a_neighbour_on_the_machine_makes_a_small_gain_run_all_rounds():
    assert rounds_until_decided(0.06, disturbed=False) == ("adopt", 2)
    assert rounds_until_decided(0.06, disturbed=True) == ("adopt", 4)
    assert rounds_until_decided(0.5, disturbed=True) == ("adopt", 2)
    assert rounds_until_decided(-0.5, disturbed=True) == ("hold", 2)


def test_a_small_gain_beside_a_neighbour_is_no_result_before_the_last_round():
    race = Race(BASE, [Runner("a", 1)])
    while (visit := race.next()) is not None and visit.round < 2:
        race.record(visit, 106.0 if visit.runner == "a" else 100.0)
    assert race.result().verdict == "adopt"
    race.disturb()
    assert race.result().verdict == "tie"


def test_smaller_is_better_for_latency():
    race = Race(BASE, [Runner("a", 1)], direction="minimize")
    play(race, lambda v: {"default": 100.0, "a": 60.0}[v.runner])
    assert race.result().winner == "a"


def test_within_the_noise_fewest_changes_win():
    race = Race(BASE, [Runner("many", 5), Runner("few", 2)])
    play(race, lambda v: {"default": 100.0, "many": 130.4, "few": 130.0}[v.runner])
    assert race.result().winner == "few"


def test_a_race_where_nothing_matters_keeps_the_default():
    rng = np.random.default_rng(5)
    kept = 0
    for _ in range(200):
        noise = noise_floor([100 * np.exp(rng.normal(0, 0.03) + rng.normal(0, 0.01, 3)) for _ in range(3)])
        race = Race(BASE, [Runner("a", 1), Runner("b", 2)], noise=noise)
        play(race, noisy(rng, 0.03, {}))
        kept += race.result().winner is None
    assert kept >= 190


def test_a_real_gain_is_found_despite_drift():
    rng = np.random.default_rng(6)
    found = 0
    for _ in range(50):
        race = Race(BASE, [Runner("a", 1), Runner("b", 2)])
        play(race, noisy(rng, 0.02, {"a": 0.12}))
        found += race.result().winner == "a"
    assert found >= 48


def test_worse_everywhere_is_hold_and_ends_early():
    race = Race(BASE, [Runner("a", 1)])
    visits = play(race, lambda v: {"default": 100.0, "a": 60.0}[v.runner])
    assert race.result().verdict == "hold" and len(visits) == 4


def test_dropped_runners_are_out_and_an_empty_race_ends():
    race = Race(BASE, [Runner("a", 1)])
    race.record(race.next(), 100.0)
    race.drop("a", "out of memory under load")
    assert race.next() is None
    result = race.result()
    assert result.winner is None and result.dropped == {"a": "out of memory under load"}


def test_without_a_baseline_the_best_finalist_is_adopted():
    race = Race(None, [Runner("a", 1), Runner("b", 1)])
    play(race, lambda v: {"a": 100.0, "b": 150.0}[v.runner])
    assert race.result().winner == "b"


def test_an_unfinished_race_decides_nothing():
    race = Race(BASE, [Runner("a", 1)])
    for value in (100.0, 200.0, 200.0):
        race.record(race.next(), value)
    assert race.result().winner is None


def test_noise_floor_separates_boots_from_loads():
    rng = np.random.default_rng(1)
    floor = noise_floor([100 * np.exp(rng.normal(0, 0.05) + rng.normal(0, 0.01, 5)) for _ in range(40)])
    assert floor.within == pytest.approx(0.01, rel=0.2)
    assert floor.between == pytest.approx(0.05, rel=0.35)
    assert floor.visits_needed(0.05) > PRIOR.visits_needed(0.05)
    assert PRIOR.smallest_claimable_gain(8) < PRIOR.smallest_claimable_gain(2)


def test_rivals_must_be_told_from_the_leader_as_well():
    speed = {"default": 100.0, "prod": 149.0, "a": 150.0}
    race = Race(BASE, [Runner("prod", 0), Runner("a", 1)], rivals=["prod"])
    play(race, lambda v: speed[v.runner])
    assert race.result().rounds == 4 and race.result().winner == "prod"
    race = Race(BASE, [Runner("prod", 0), Runner("a", 1)], rivals=["prod"])
    play(race, lambda v: speed[v.runner] * (1.2 if v.runner == "a" else 1))
    result = race.result()
    assert result.rounds == 2 and result.winner == "a"
    standing = {s.runner: s for s in result.standings}
    gain, low, high = result.gain_over(standing["a"], standing["prod"])
    assert gain == pytest.approx(180 / 149 - 1) and 0 < low < gain < high
    assert result.values["prod"] == pytest.approx((149.0, 149.0))


class Watch:
    """A clock that stands still between what a test does."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def test_budget_keeps_the_race_affordable():
    watch = Watch()
    budget = Budget(seconds=600, race_visits=4, boot_guess_s=30, point_guess_s=10, clock=watch)
    while budget.allows_trial():
        watch.now += 40
        budget.saw_boot(30)
        budget.saw_point(10)
        budget.count_trial()
    assert budget.trials_done == 11
    visits = 0
    while budget.allows_visits(1):
        watch.now += 40
        visits += 1
    assert visits == 4 and budget.spent_s == 600


def test_budget_counts_waiting_and_earlier_runs():
    watch = Watch()
    budget = Budget(seconds=600, before_s=200, clock=watch)
    watch.now += 50
    assert budget.spent_s == 250


def test_budget_foresees_that_the_races_loads_are_longer():
    budget = Budget(seconds=600, race_visits=6, race_extra_s=10, clock=Watch())
    budget.saw_boot(20)
    budget.saw_point(8)
    budget.saw_stop(1)
    assert budget.visit_s == 20 + 8 + 10 + 1
    budget.saw_point(12, race=True)
    assert budget.visit_s == 20 + 12 + 1


def test_after_warm_boots_the_reserve_is_what_plain_boots_will_take():
    budget = Budget(seconds=300, race_visits=4)
    budget.saw_boot(48, warm=True, compile_s=4, imports_s=20)
    budget.saw_point(8)
    assert budget.reserve_s == pytest.approx(4 * (0.75 * 44 + 8)) and budget.boot_s == 28
    budget.saw_boot(2.2, warm=True, imports_s=0.2)
    assert budget.visit_s == pytest.approx(1.5 * 20 + 2 + 8)
    budget.saw_boot(25, compile_s=5)
    assert budget.visit_s == pytest.approx(20 + 8)


def test_a_cold_first_boot_leaves_a_short_budget_room_for_trials():
    """As measured with two cores, a fresh environment and 6 minutes: 48 s for the first boot, 25 s hot and plain."""
    watch = Watch()
    budget = Budget(seconds=360, race_visits=4, race_extra_s=10, clock=watch)
    for boot_s, imports_s in [(48, 20.5), *[(2, 0.3)] * 8]:
        if not budget.allows_trial():
            break
        watch.now += boot_s + 13.5 * (3 if boot_s == 48 else 1)
        budget.saw_boot(boot_s, warm=True, imports_s=imports_s)
        budget.saw_point(12.6)
        budget.saw_stop(0.9)
        budget.count_trial()
    assert 4 <= budget.trials_done <= 8
    assert budget.spent_s + 4 * (25 + 22.6 + 0.9) <= 1.1 * 360


def test_budget_learns_from_measured_boots_and_counts_trials():
    budget = Budget(seconds=1000, trials=5, race_visits=2, boot_guess_s=300, point_guess_s=10)
    assert budget.trials_left() == 1
    budget.saw_boot(20)
    budget.count_trial()
    assert budget.trials_left() == 4
    assert Budget(trials=0).allows_trial() is False
