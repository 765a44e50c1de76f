"""The watch beside a load: what it sees ends the load, and it never ends without a word."""

import time
from collections.abc import Callable

import pytest

from autotune.engine.failures import Failure
from autotune.tuner import watch
from autotune.tuner.watch import Watch


class Engine:
    def __init__(self, watchdog: Callable[[], Failure | None]) -> None:
        self.watchdog = watchdog


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "EVERY_S", 0.01)


def seen(watchdog: Callable[[], Failure | None]) -> Failure | None:
    with Watch(Engine(watchdog)).running() as running:  # type: ignore[arg-type]
        deadline = time.monotonic() + 2
        while running.failure is None and time.monotonic() < deadline:
            time.sleep(0.01)
    return running.failure


def test_the_first_failure_is_kept() -> None:
    answers = iter([None, Failure.of("run_hang"), Failure.of("unknown")])
    found = seen(lambda: next(answers))
    assert found is not None and found.cls.name == "run_hang"


def test_a_watch_that_fails_says_so() -> None:
    def broken() -> Failure | None:
        raise ValueError("half an answer")

    found = seen(broken)
    assert found is not None and found.cls.name == "unknown" and "half an answer" in str(found.line)
