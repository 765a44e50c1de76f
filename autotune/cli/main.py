"""The ``autotune`` command.

Commands are listed in ``COMMANDS`` and imported only when one of them is called, so that ``--help`` answers
at once. To add a command, write ``autotune/cli/NAME.py`` with a function whose arguments are typer's, and add
one line to ``COMMANDS``: its name, ``module:function`` and one line of help.

Errors: an ``AutotuneError`` is printed in one or two lines and ends the process with its exit code; wrong
arguments end it with 2, Ctrl-C with 130. ``--debug`` (or AUTOTUNE_DEBUG=1) shows the traceback as well.
Anything else that is raised is a fault of this program and keeps its traceback.
"""

import importlib
import os
import sys
import traceback
from collections.abc import Mapping
from typing import Annotated, Any

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from autotune import __version__
from autotune.errors import AutotuneError

COMMANDS: Mapping[str, tuple[str, str]] = {
    "run": ("autotune.cli.run:run", "Find the best launch configuration for this machine and prove it."),
    "plan": ("autotune.cli.plan:plan", "Show what a run would try, leave out and cost; starts nothing."),
    "compare": ("autotune.cli.compare:compare", "Show precisions of a model by memory, speed and quality, measured."),
    "detect": ("autotune.cli.detect:detect", "Show the GPUs, the CPU, every vLLM, and the search space chosen."),
    "check": ("autotune.cli.check:check", "Say what is wrong with a vLLM launch command or file, before it starts."),
    "explain": ("autotune.cli.explain:explain", "Say why a vLLM log shows a failure, and what to do about it."),
    "reap": ("autotune.cli.reap:reap", "End the engines that a killed tuner left behind."),
    "export": ("autotune.cli.export:export", "Write a study's recommendation for vLLM, systemd, Docker, Kubernetes …"),
    "retune": (
        "autotune.cli.retune:retune",
        "Say whether a new vLLM is better or worse, and adopt or hold it.",
    ),
    "schedule": ("autotune.cli.schedule:schedule", "Run the re-tune every night: systemd timer, cron or Kubernetes."),
    "serve": ("autotune.cli.serve:serve", "Start vLLM with the best configuration known for this machine."),
    "bench": ("autotune.cli.bench:bench", "Load any OpenAI-compatible server and measure it."),
}

HELP_NAMES = {"help_option_names": ["-h", "--help"]}
STOPPED = 130
PIPE_CLOSED = 141

# typer carries its own copy of click in newer versions, so click's classes are reached through typer.
ArgumentsError: type[Exception] = typer.BadParameter.__mro__[1]


class LazyGroup(TyperGroup):
    """Knows every command by name and help; imports one when it is called."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, (_, text) in COMMANDS.items():
            self.add_command(TyperCommand(name, help=text))

    def list_commands(self, ctx: Any) -> list[str]:
        """Commands in the order of ``COMMANDS``."""
        return list(COMMANDS)

    def invoke(self, ctx: Any) -> Any:
        """Call the command; an error that is meant for a person becomes its message and exit code."""
        try:
            return super().invoke(ctx)
        except AutotuneError as error:
            if ctx.params.get("debug"):
                traceback.print_exc()
            raise typer.Exit(_tell(str(error), error.exit_code)) from error
        except KeyboardInterrupt:
            raise typer.Exit(_tell("stopped", STOPPED)) from None
        except BrokenPipeError:
            raise typer.Exit(_nobody_reads()) from None

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command to call, imported now."""
        name, found, rest = super().resolve_command(ctx, args)
        return name, load_command(name) if found and name else found, rest


def load_command(name: str) -> Any:
    """The command behind one line of ``COMMANDS``, with its own help in place of the short one."""
    path, _, function = COMMANDS[name][0].partition(":")
    single = typer.Typer(add_completion=False)
    single.command(name, context_settings=HELP_NAMES)(getattr(importlib.import_module(path), function))
    command = typer.main.get_command(single)
    command.name = name
    return command


app = typer.Typer(cls=LazyGroup, add_completion=False, context_settings=HELP_NAMES, pretty_exceptions_enable=False)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"autotune {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", envvar="AUTOTUNE_DEBUG", help="Show tracebacks of errors.")] = False,
) -> None:
    """Find the best vLLM launch configuration for a GPU, prove it, and keep it true."""
    del version, debug  # handled by their callback and by LazyGroup.invoke
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    sys.exit(run_command(sys.argv[1:] if arguments is None else arguments))


def run_command(arguments: list[str]) -> int:
    """Run one command line; returns its exit code after telling of what went wrong."""
    try:
        code = typer.main.get_command(app).main(arguments, prog_name="autotune", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except ArgumentsError as error:
        return _tell(_arguments_text(error), 2)
    except (KeyboardInterrupt, typer.Abort):
        return _tell("stopped", STOPPED)
    except BrokenPipeError:
        return _nobody_reads()


def _nobody_reads() -> int:
    """Whoever read our output has gone, as ``| head`` does: end without a word, as other programs do."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
    return PIPE_CLOSED


def _arguments_text(error: Any) -> str:
    """The message and where help is found; ``ctx`` is the command that refused its arguments."""
    command = error.ctx.command_path if error.ctx else "autotune"
    return f"{error.format_message()}\nSee {command} --help."


def _tell(message: str, code: int) -> int:
    typer.secho("error: ", fg=typer.colors.RED, bold=True, err=True, nl=False)
    typer.echo(message, err=True)
    return code
