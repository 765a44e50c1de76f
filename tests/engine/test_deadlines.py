"""When a boot counts as hung."""

from collections.abc import Iterable
from dataclasses import dataclass

import pytest

from autotune.engine import procfs
from autotune.engine.deadlines import Deadlines, Progress
from autotune.engine.procfs import ProcessId, ProcessStat


@dataclass
class Clock:
    """Seconds that pass when told."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def burning(cpu_s: float) -> Iterable[ProcessStat]:
    """One process that has used so much CPU time."""
    ticks = int(cpu_s * procfs.TICKS_PER_S)
    return [ProcessStat(ProcessId(2**22 + 1, 1), "vllm", "R", 1, 1, 1, ticks, 1)]


def test_limits_follow_each_phases_own_history() -> None:
    deadlines = Deadlines(unknown_s=900).learned({"weights": 4.0, "compile": 80.0}).learned({"compile": 7.0})
    assert deadlines.limit_s("weights") == 120
    assert deadlines.limit_s("compile") == 400
    assert deadlines.limit_s("graphs") == 900


def test_silence_without_cpu_use_is_a_hang() -> None:
    clock = Clock()
    progress = Progress(Deadlines(idle_s=120), clock)
    progress.entered("weights")
    clock.now = 119
    assert progress.verdict() is None
    clock.now = 121
    assert "no CPU use" in (progress.verdict() or "")


@pytest.mark.parametrize(
    ("line", "hung"),
    [(b"loading shard 3", False), (b"No available shared memory broadcast block found in 60 seconds", True)],
)
def test_a_log_line_is_a_sign_of_life_unless_it_only_says_that_it_waits(line: bytes, hung: bool) -> None:
    clock = Clock()
    progress = Progress(Deadlines(idle_s=120), clock)
    clock.now = 100
    progress.logged([line])
    clock.now = 150
    assert (progress.verdict() is not None) == hung


def test_busy_and_silent_is_a_hang_only_past_the_phases_limit() -> None:
    clock = Clock()
    progress = Progress(Deadlines(history_s={"graphs": 30.0}), clock)
    progress.entered("graphs")
    for second in range(0, 150, 2):
        clock.now = second
        progress.sampled(burning(cpu_s=second))
    assert progress.verdict() is None
    for second in range(150, 160, 2):
        clock.now = second
        progress.sampled(burning(cpu_s=second))
    assert "over 150 s" in (progress.verdict() or "")


def test_busy_and_talking_may_pass_the_limit_but_not_the_cap() -> None:
    clock = Clock()
    progress = Progress(Deadlines(history_s={"weights": 1.0}, cap_s=1000), clock)
    progress.entered("weights")
    for second in range(0, 1000, 10):
        clock.now = second
        progress.logged([b"still downloading"])
        assert progress.verdict() is None
    clock.now = 1001
    progress.logged([b"still downloading"])
    assert "over 1000 s" in (progress.verdict() or "")


def test_an_idle_polling_process_is_no_sign_of_life() -> None:
    clock = Clock()
    progress = Progress(Deadlines(idle_s=60), clock)
    for second in range(0, 64, 2):
        clock.now = second
        progress.sampled(burning(cpu_s=second * 0.02))
    assert progress.verdict() is not None


def test_a_process_that_ends_does_not_hide_the_others_work() -> None:
    clock = Clock()
    progress = Progress(Deadlines(idle_s=60), clock)
    progress.sampled(burning(cpu_s=500))
    clock.now = 59
    progress.sampled([ProcessStat(ProcessId(2**22 + 2, 1), "vllm", "R", 1, 1, 1, 50 * procfs.TICKS_PER_S, 1)])
    clock.now = 100
    assert progress.verdict() is None
