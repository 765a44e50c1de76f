"""``autotune explain`` as a person and as a program call it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

LOGS = Path(__file__).resolve().parents[1] / "engine" / "logs" / "real"
PROGRAM = "import typer; from autotune.cli.explain import explain; typer.run(explain)"


def explain(*words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    environ = {**os.environ, "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    return subprocess.run([sys.executable, "-c", PROGRAM, *words], input=stdin, capture_output=True, env=environ)


def test_json_names_class_phase_line_and_what_it_teaches() -> None:
    answer = json.loads(explain(str(LOGS / "batched_lt_seqs.log"), "--json", "--exit-code", "1").stdout)
    assert answer["class"] == "invalid_combination"
    assert answer["failure"] is True
    assert answer["phase"] == "config"
    assert answer["teaches"] is True
    assert "max_num_batched_tokens (8)" in answer["line"]
    assert answer["margin"] == {"unit": "tokens", "needed": 16, "available": 8, "shortfall": 8}
    assert answer["exit_code"] == 1
    assert answer["what_to_do"]


def test_the_line_number_leads_to_the_line() -> None:
    path = LOGS / "port_in_use.log"
    answer = json.loads(explain(str(path), "--json").stdout)
    assert answer["teaches"] is False
    assert answer["line"] in path.read_text().splitlines()[answer["line_number"] - 1]


def test_text_tells_a_person_what_to_do() -> None:
    text = explain(str(LOGS / "port_in_use.log")).stdout.decode()
    assert text.startswith("port_in_use: ")
    assert "Address already in use" in text
    assert "Use a free port" in text


def test_standard_input_is_read() -> None:
    answer = explain("-", "--json", stdin=b"vllm serve: error: unrecognized arguments: --no-such-flag")
    assert json.loads(answer.stdout)["class"] == "invalid_flag"


def test_a_healthy_log_gives_the_facts_of_the_boot() -> None:
    healthy = (LOGS / "healthy.log").read_bytes().split(b"[shutdown]")[0]
    answer = json.loads(explain("-", "--json", stdin=healthy).stdout)
    assert answer["class"] is None and answer["failure"] is False
    assert answer["facts"]["kv_tokens"] == 65_536
    text = explain("-", stdin=healthy).stdout.decode()
    assert text.startswith("No failure in this log: the server is up.")
    assert "65,536" in text


@pytest.mark.parametrize("stdin", [b"", b"\xff\xfe\x00", b"hello\n"])
def test_anything_is_answered(stdin: bytes) -> None:
    assert json.loads(explain("-", "--json", stdin=stdin).stdout)["class"] is None


def test_an_exit_without_a_word_is_a_failure() -> None:
    answer = explain("-", "--json", "--exit-code", "137", "--oom-kills", "1", "--not-stopped", stdin=b"")
    assert json.loads(answer.stdout)["class"] == "host_oom"


def test_a_missing_file_is_a_usage_error() -> None:
    assert explain("/no/such/file.log").returncode != 0
