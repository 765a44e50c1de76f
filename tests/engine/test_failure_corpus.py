"""Failures as people reported them (vLLM 0.6 to 0.33, GPUs of all kinds), each with the class it must get."""

import pytest
from log_shapes import as_bytes, boot, failing_log, reported

from autotune.engine.failure_classes import CLASSES, Consequence
from autotune.engine.failures import Failure, MarginBytes, MarginTokens, classify
from autotune.engine.patterns import HINTS, OOM, PATTERNS

GIB = 1 << 30
CASES = reported()


def failure_of(name: str, **around: int) -> Failure:
    failure = classify(as_bytes(failing_log(CASES[name])), **around)  # type: ignore[arg-type]
    assert failure is not None
    return failure


@pytest.mark.parametrize("name", CASES)
def test_reported_failure_gets_its_class(name: str) -> None:
    failure = failure_of(name)
    assert failure.cls.name == CASES[name]["class"]
    assert failure.line
    assert failure.line_number and failure.line_number > len(boot(CASES[name].get("until", "imports")))


@pytest.mark.parametrize("name", CASES)
def test_the_phase_is_the_one_that_was_reached(name: str) -> None:
    until = CASES[name].get("until", "imports")
    assert failure_of(name).phase == {"graphs": "profile"}.get(until, until)


@pytest.mark.parametrize(
    ("name", "margin"),
    [
        ("kv_too_small", MarginBytes(24 * GIB, round(3.18 * GIB))),
        ("kv_too_small_v0", MarginTokens(32768, 18320)),
        ("kv_none", MarginBytes(0, round(-1.07 * GIB))),
        ("oom_load", MarginBytes(round(1.5 * GIB), round(812.19 * (1 << 20)))),
        ("oom_old_wording", MarginBytes(136 << 20, 79 << 20)),
        ("free_less_than_desired", MarginBytes(round(65.32 * GIB), round(22.65 * GIB))),
        ("length", MarginTokens(131072, 40960)),
        ("batched_below_seqs", MarginTokens(16, 8)),
        ("small_kv", MarginTokens(4096, 896)),
    ],
)
def test_margin_is_read(name: str, margin: MarginBytes | MarginTokens) -> None:
    failure = failure_of(name)
    assert failure.margin == margin
    assert failure.margin.shortfall > 0


@pytest.mark.parametrize("name", CASES)
def test_only_the_configurations_own_failures_teach(name: str) -> None:
    failure = failure_of(name)
    if CASES[name].get("environment"):
        assert not failure.teaches
        assert failure.consequence in (Consequence.RETRY_ONCE, Consequence.STOPS_STUDY)
    elif failure.cls.name.startswith(("oom_", "kv_cache")):
        assert failure.teaches


def test_a_budget_that_no_empty_device_could_meet_teaches() -> None:
    assert not failure_of("free_less_than_desired", baseline_free_bytes=78 * GIB).teaches
    assert failure_of("free_less_than_desired", baseline_free_bytes=40 * GIB).teaches


def test_every_pattern_belongs_to_a_class() -> None:
    assert {row.cls for row in (*PATTERNS, *HINTS)} - {OOM} <= CLASSES.keys()


def test_every_class_says_what_to_do() -> None:
    for name, cls in CLASSES.items():
        assert cls.name == name
        assert cls.summary and cls.what_to_do and not cls.what_to_do.endswith(".")
