"""The watch beside a load ends with it."""

import time

import pytest

from autotune.engine.metrics import EngineMetrics
from autotune.tuner.server_watch import ServerWatch


def test_ctrl_c_does_not_wait_for_a_scrape() -> None:
    scrapes = 0

    def scrape() -> EngineMetrics | None:
        nonlocal scrapes
        scrapes += 1
        time.sleep(5 if scrapes > 1 else 0)
        return None

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt), ServerWatch(scrape, period_s=0.05):
        time.sleep(0.3)
        raise KeyboardInterrupt
    assert scrapes == 2
    assert time.monotonic() - started < 2
