from pathlib import Path

import pytest

from autotune.errors import UsageError
from autotune.tuner.settings import parse_duration, resolve_settings

UNSENDABLE = (1e99, 100_001.0, 0.00099999, 1e-99, -1.0, float("nan"), float("inf"))


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("5m", 300), ("1h30m", 5400), ("1.5h", 5400), (45, 45)]
)
def test_durations(text: str | int, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "5 apples", "m", "-5m", "5m3h"])
def test_what_is_no_duration_is_refused_with_its_value(text: str) -> None:
    with pytest.raises(UsageError, match="no duration"):
        parse_duration(text)


def test_an_option_beats_the_file_and_the_file_beats_the_default(tmp_path: Path) -> None:
    file = tmp_path / "autotune.yaml"
    file.write_text("workload: chat\nbudget: 10m\ngpu: 1\n")
    settings = resolve_settings({"workload": "rag", "gpu": None}, file)
    assert (settings.workload, settings.budget_s, settings.gpu, settings.seed) == ("rag", 600, "1", 0)


def test_objectives_are_read_from_the_file_too(tmp_path: Path) -> None:
    file = tmp_path / "autotune.yaml"
    file.write_text("objective: goodput\nslo: [ttft_p95=500ms, tpot_p95=50ms]\n")
    assert [str(slo) for slo in resolve_settings({}, file).slos] == ["ttft_p95=500ms", "tpot_p95=50ms"]
    file.write_text("objective: latency\nrate: 4\nslo: ttft_p95=1s\n")
    asked = resolve_settings({}, file).asked
    assert (asked.rate_per_s, [str(slo) for slo in asked.slos]) == (4.0, ["ttft_p95=1000ms"])
    file.write_text("objective: cost\nprice-per-hour: 2.5\n")
    assert resolve_settings({}, file).price_per_hour == 2.5


def test_trials_alone_means_no_time_limit() -> None:
    settings = resolve_settings({"trials": 3}, Path("absent.yaml"))
    assert settings.budget_s is None and settings.trials == 3


def test_no_trials_at_all_race_what_is_given() -> None:
    settings = resolve_settings({"trials": 0, "from_command": ["vllm serve m"]}, Path("absent.yaml"))
    assert settings.trials == 0 and settings.budget_s is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"budget": "0"}, "leaves no time"),
        ({"window": "0.1s"}, "--window 0.1s"),
        ({"window": "x"}, "--window 'x'"),
        ({"race_window": "0.2s"}, "--race-window 0.2s"),
        ({"trials": 0}, "Add --from-command or --from-config"),
        ({"trials": -1}, "--trials -1"),
        ({"concurrency": -1}, "--concurrency -1"),
        ({"objective": "speed"}, "'speed' is unknown"),
        ({"objective": "goodput"}, "--slo ttft_p95=500ms"),
        ({"objective": "latency"}, "such as --rate 4"),
        ({"objective": "cost"}, "such as --price-per-hour 2.50"),
        ({"rate": 4.0}, "--rate 4 has no meaning with --objective throughput"),
        ({"objective": "latency", "rate": 0.0}, "--rate 0 is no rate .* 0.001 to 100000"),
        *(({"objective": "latency", "rate": rate}, "--rate .* is no rate") for rate in UNSENDABLE),
        ({"objective": "cost", "price_per_hour": 1e-99}, "--price-per-hour 1e-99 is no price"),
        ({"objective": "cost", "price_per_hour": float("nan")}, "--price-per-hour nan"),
        ({"objective": "latency", "rate": 4.0, "concurrency": 8}, "--concurrency 8 has no meaning"),
        ({"objective": "pareto", "price_per_hour": 2.5}, "--price-per-hour 2.5 has no meaning"),
        ({"budget": "9" * 400 + "h"}, "longer than a year"),
        ({"window": "500h", "budget": "1h"}, "take 9000000 s"),
        ({"objective": "pareto", "concurrency": 3}, "--concurrency 3 leaves no three loads"),
        ({"slo": ["fast"]}, "like ttft_p95=500ms"),
        ({"slo": ["ttft_p95=0ms"]}, "'ttft_p95=0ms' asks for nothing"),
        ({"slo": ["ttft_p0=5ms"]}, "'ttft_p0=5ms' asks for nothing"),
        ({"slo": ["ttft_p99.999999=1s"]}, "'ttft_p99.999999=1s' asks for more than can be measured"),
        ({"slo": ["ttft_p95=1.0000001ms"]}, "whole microseconds"),
        ({"slo": [f"ttft_p95={'9' * 400}s"]}, "up to 86400s"),
        ({"window": "600s", "budget": "5m"}, "--budget 300s has no room for the windows: .* take 3000 s"),
        ({"race_window": "60s", "budget": "4m"}, "take 240 s"),
        ({"slo": ["ttft_p95=1s", "ttft_p95=2s"]}, "ttft_p95=1000ms stands beside another"),
        ({"sampler": "magic"}, "'magic' is unknown"),
        ({"study": "a/b"}, "'a/b'"),
        ({"storage": ""}, "--storage is empty"),
        ({"model": ""}, "--model is empty"),
        ({"max_quality_loss": ""}, "--max-quality-loss is empty"),
        ({"vllm_arg": [""]}, "--vllm-arg is empty"),
    ],
)
def test_bad_values_are_named(given: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        resolve_settings(given, Path("absent.yaml"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("modle: x\n", "modle"),
        ("trials: many\n", "trials = 'many'"),
        ("a: [", "cannot be read"),
        ("- 1\n", "the file"),
    ],
)
def test_a_wrong_file_is_named_with_key_and_value(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "autotune.yaml"
    file.write_text(text)
    with pytest.raises(UsageError, match=words):
        resolve_settings({}, file)
