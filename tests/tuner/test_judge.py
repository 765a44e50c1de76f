import pytest

from autotune.engine.failures import Failure, MarginBytes, MarginTokens
from autotune.errors import EnvironmentFault, UsageError
from autotune.tuner.judge import Judge

GIB = 2**30


def test_a_config_that_cannot_fit_is_infeasible_by_its_missing_share() -> None:
    failure = Failure.of("kv_cache_too_small", line="ValueError: To serve", margin=MarginTokens(4096, 1024))
    outcome = Judge(16 * GIB).outcome(failure, 30, "a")
    assert (outcome.status, outcome.margin, outcome.cost_s) == ("infeasible", 0.75, 30)
    assert outcome.value is None and outcome.reason == "kv_cache_too_small: ValueError: To serve"


def test_bytes_are_a_share_of_the_device() -> None:
    failure = Failure.of("kv_cache_none", margin=MarginBytes(needed=4 * GIB, available=0))
    assert Judge(16 * GIB).outcome(failure, 1, "a").margin == 0.25


def test_a_machine_in_the_way_teaches_nothing_and_stops_the_study_the_second_time() -> None:
    judge = Judge(GIB)
    failure = Failure.of("port_in_use")
    assert judge.outcome(failure, 1, "a").status == "not_measured"
    with pytest.raises(EnvironmentFault, match="machine is at fault"):
        judge.outcome(failure, 1, "a")


def test_a_boot_that_works_in_between_starts_the_count_again() -> None:
    judge = Judge(GIB)
    judge.outcome(Failure.of("port_in_use"), 1, "a")
    judge.success()
    assert judge.outcome(Failure.of("port_in_use"), 1, "a").status == "not_measured"


def test_what_no_configuration_can_mend_stops_at_once() -> None:
    with pytest.raises(EnvironmentFault, match="\n"):
        Judge(GIB).outcome(Failure.of("broken_install", line="ImportError: _C.abi3.so"), 1, "a")


def test_a_model_that_cannot_be_served_is_the_models_fault() -> None:
    with pytest.raises(UsageError, match="the model is at fault"):
        Judge(GIB).outcome(Failure.of("weights_corrupt", line="SafetensorError: header"), 1, "a")


CRASH = Failure.of("unknown", line="RuntimeError: the flux capacitor is not aligned")


def test_a_configuration_that_crashes_twice_where_another_came_up_is_at_fault() -> None:
    judge = Judge(GIB)
    judge.success()
    assert judge.outcome(CRASH, 1, "a").status == "not_measured"
    assert judge.outcome(CRASH, 1, "a").status == "infeasible"


def test_but_not_where_nothing_has_come_up_yet() -> None:
    judge = Judge(GIB)
    judge.outcome(CRASH, 1, "a")
    with pytest.raises(EnvironmentFault):
        judge.outcome(CRASH, 1, "a")


def test_and_not_two_configurations_in_a_row() -> None:
    judge = Judge(GIB)
    judge.success()
    judge.outcome(CRASH, 1, "a")
    judge.outcome(CRASH, 1, "a")
    with pytest.raises(EnvironmentFault):
        judge.outcome(CRASH, 1, "b")


def test_and_not_for_what_only_a_machine_does() -> None:
    judge = Judge(GIB)
    judge.success()
    judge.outcome(Failure.of("port_in_use"), 1, "a")
    with pytest.raises(EnvironmentFault):
        judge.outcome(Failure.of("port_in_use"), 1, "a")
