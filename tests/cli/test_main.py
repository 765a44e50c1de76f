"""The command line itself: quick help, lazy imports, errors in one or two lines with their exit codes."""

import os
import subprocess
import sys

import pytest

from autotune.cli.main import COMMANDS, load_command, run_command

CALL = "import sys; from autotune.cli.main import main; main()"
HELP_LIMIT_S = 0.35


def call(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CALL, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environ},
    )


def test_help_answers_at_once() -> None:
    """Processor time is measured: on an idle machine it is the time a person waits, and others do not disturb it."""

    def took_s() -> float:
        before = os.times()
        assert call("--help").returncode == 0
        after = os.times()
        return after.children_user + after.children_system - before.children_user - before.children_system

    assert min(took_s() for _ in range(5)) <= HELP_LIMIT_S


def test_help_imports_no_command_and_nothing_heavy() -> None:
    heavy = "numpy scipy optuna sqlalchemy plotly aiohttp pydantic psutil pynvml torch vllm"
    code = f"""
import sys
from autotune.cli.main import run_command
run_command(["--help"])
print([name for name in sys.modules if name.startswith("autotune.cli.") and name != "autotune.cli.main"])
print([name for name in {heavy.split()!r} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-2:] == ["[]", "[]"]


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_listed_command_can_be_loaded(name: str) -> None:
    command = load_command(name)
    assert command.name == name and command.help


def test_help_lists_every_command_with_its_line() -> None:
    text = call("--help", COLUMNS="120").stdout
    for name, (_, line) in COMMANDS.items():
        assert name in text and line in text
    assert call().stdout == call("--help").stdout


def test_the_version_is_told() -> None:
    from autotune import __version__

    assert call("--version").stdout.strip() == f"autotune {__version__}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--nope"], "No such option: --nope"),
        (["detct"], "No such command 'detct'. Did you mean 'detect'?"),
        (["detect", "--nope"], "No such option: --nope\nSee autotune detect --help."),
        (["detect", "--gpu"], "requires an argument"),
        (["detect", "extra"], "unexpected extra argument"),
        (["detect", "--gpu", "77"], "--gpu 77: there is no such GPU here"),
    ],
)
def test_wrong_arguments_are_told_in_two_lines(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and message in err
    assert err.count("\n") <= 2


def test_a_traceback_appears_only_with_debug(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["detect", "--gpu", "77"]) == 2
    assert "Traceback" not in capsys.readouterr().err
    assert run_command(["--debug", "detect", "--gpu", "77"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_ctrl_c_ends_with_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("autotune.tuner.survey.survey", interrupted)
    assert run_command(["detect"]) == 130
    assert capsys.readouterr().err == "error: stopped\n"


def test_a_fault_of_this_program_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("autotune.tuner.survey.survey", broken)
    with pytest.raises(ZeroDivisionError):
        run_command(["detect"])
