"""``autotune bench`` from its arguments to what it prints."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotune.cli.main import run_command

QUICK = ("--min", "1.5s", "--max", "3s", "--clients", "1")


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "autotune", "bench", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_table_and_a_picture(mock: Callable[..., Any], tmp_path: Path) -> None:
    picture = tmp_path / "out" / "bench.html"
    done = bench(mock().target.base_url, "-c", "8", *QUICK, "--slo", "ttft_p90=2s", "--html", str(picture))
    assert done.returncode == 0, done.stderr
    for word in ("output tokens/s", "TTFT", "TPOT", "ITL", "E2EL", "goodput", "SLO ttft_p90=2000ms: met"):
        assert word in done.stdout
    html = picture.read_text(encoding="utf-8")
    assert "Latency by percentile" in html and '<script src="http' not in html


def test_json_holds_the_measurement(mock: Callable[..., Any]) -> None:
    done = bench(mock().target.base_url, "-c", "4", "--json", *QUICK)
    found = json.loads(done.stdout)
    assert found["measurement"]["counts"]["completed"] > 0
    assert found["measurement"]["load"] == "4 in flight"


@pytest.mark.parametrize(
    "arguments, words, code",
    [
        (("http://127.0.0.1:9",), "does not answer as an OpenAI server does", 3),
        (("http://127.0.0.1:9",), "Connection refused. Check that the server is up", 3),
        (("http://127.0.0.1:99999",), "is not a server's URL (Port out of range 0-65535)", 2),
        (("http://127.0.0.1:9", "--api-key", "a\nb"), "the API key holds a line break", 2),
        (("http://127.0.0.1:9", "-c", "4", "--rate", "3"), "give one of --concurrency", 2),
        (("http://127.0.0.1:9", "--capacity"), "--capacity needs at least one --slo", 2),
        (("http://127.0.0.1:9", "--slo", "fast"), "like ttft_p95=500ms", 2),
        (("http://127.0.0.1:9", "--min", "9s", "--max", "3s"), "is longer than", 2),
        (("http://127.0.0.1:9", "--min", "0s"), "--min 0s is too short", 2),
        (("http://127.0.0.1:9", "--rate", "nan"), "--rate nan is no rate", 2),
        (("http://127.0.0.1:9", "--rate", "0.0009"), "--rate 0.0009 is no rate", 2),
        (("http://127.0.0.1:9", "--rate", "1e99"), "0.001 to 100000 requests per second", 2),
        (("http://127.0.0.1:9", "--rate", "inf"), "--rate inf is no rate", 2),
        (("http://127.0.0.1:9", "--rate", "5", "--burstiness", "nan"), "'--burstiness'", 2),
        (("http://127.0.0.1:9", "--vocab-size", "-4"), "--vocab-size -4 is too small", 2),
        (("ftp://x",), "is not a server's URL", 2),
    ],
)
def test_mistakes_are_told_in_a_line(
    arguments: tuple[str, ...], words: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["bench", *arguments]) == code
    told = capsys.readouterr().err
    assert words in " ".join(told.split())
    assert "Traceback" not in told


def test_an_unknown_model_lists_those_there_are(mock: Callable[..., Any]) -> None:
    done = bench(mock().target.base_url, "--model", "x")
    assert "it serves: m" in " ".join(done.stderr.split())
    assert done.returncode == 2
