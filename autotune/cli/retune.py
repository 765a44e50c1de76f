"""``autotune retune``: does the configuration in production still hold on the vLLM that is installed now?"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from autotune.retune.plans import RetuneSettings
    from autotune.retune.publish import Export

ERROR = 2


def retune(
    study: Annotated[
        str,
        typer.Argument(metavar="STUDY", help="The study's folder or name, its study.db, or a registry entry."),
    ],
    old_python: Annotated[
        Path | None, typer.Option("--old-python", help="The Python of the old vLLM (default: the recorded one).")
    ] = None,
    new_python: Annotated[
        Path | None,
        typer.Option("--new-python", envvar="AUTOTUNE_VLLM_PYTHON", help="The new vLLM's Python (default: found)."),
    ] = None,
    budget: Annotated[
        str, typer.Option(envvar="AUTOTUNE_BUDGET", help="Time for everything, never exceeded, such as 1h.")
    ] = "1h",
    export: Annotated[
        list[str] | None,
        typer.Option("--export", metavar="FORMAT=FILE", help="A file to replace when a configuration is adopted."),
    ] = None,
    no_search: Annotated[
        bool, typer.Option("--no-search", help="Compare only; look for no better configuration.")
    ] = False,
    gpu: Annotated[str, typer.Option(envvar="AUTOTUNE_GPU", help="auto, a GPU's index or UUID, or cpu.")] = "auto",
    space: Annotated[
        str,
        typer.Option(envvar="AUTOTUNE_SPACE", help="auto, a built-in search space, or a YAML file."),
    ] = "auto",
    workload: Annotated[
        str | None, typer.Option(help="The workload's file, where the study used one (default: the recorded name).")
    ] = None,
    concurrency: Annotated[int | None, typer.Option(help="Requests in flight (default: the recorded ones).")] = None,
    window: Annotated[str | None, typer.Option(help="Shortest scored window of a point, such as 10s.")] = None,
    storage: Annotated[
        str | None, typer.Option(envvar="AUTOTUNE_STORAGE", help="SQLAlchemy URL that holds the study STUDY.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder below which re-tuning writes (default: the study's).")
    ] = None,
    rollback: Annotated[
        bool, typer.Option("--rollback", help="Put back the files that the last adoption replaced, and end.")
    ] = False,
    nightly: Annotated[
        str | None,
        typer.Option("--nightly", metavar="02:00-05:00", help="Unattended: in this window only, alone, on a free GPU."),
    ] = None,
    notify: Annotated[
        str | None, typer.Option("--notify", help="With --nightly: shell command to run on hold or error.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON on standard output.")] = False,
) -> None:
    """Compare the vLLM installed now with the one that was tuned, in turns on fresh prompts, and act on the verdict.

    adopt and adopt-new-config replace the exported files and keep the previous ones; hold and equal change nothing.
    Exit codes: 0 no change needed, 10 a configuration was exported, 20 hold, 30 could not decide, 2 error.
    """
    from autotune.errors import AutotuneError, Interrupted
    from autotune.retune.plans import RetuneSettings
    from autotune.retune.publish import parse_exports
    from autotune.tuner.settings import parse_duration, read_window

    try:
        exports = parse_exports(export or ())
        if rollback:
            _roll_back(study, storage, out, exports)
            return
        settings = RetuneSettings(
            study=study,
            storage=storage,
            out=out,
            old_python=old_python,
            new_python=new_python,
            gpu=gpu,
            space=space,
            workload=workload,
            concurrency=concurrency,
            window_s=read_window("window", window),
            budget_s=parse_duration(budget),
            search=not no_search,
            exports=exports,
        )
        code = _run(settings, nightly, notify, json)
    except Interrupted:
        raise
    except AutotuneError as error:
        # Automation reads 2 as "nothing was found out", whatever the cause.
        error.exit_code = ERROR
        raise
    raise typer.Exit(code)


def _run(settings: "RetuneSettings", window: str | None, notify: str | None, as_json: bool) -> int:
    from autotune.retune.nightly import Window, nightly
    from autotune.retune.run import report_text, retune

    report = retune(settings) if window is None else nightly(settings, Window.parse(window), notify)
    typer.echo(report_text(report) if as_json else "\n".join(report.lines()), nl=not as_json)
    return report.exit_code


def _roll_back(study: str, storage: str | None, out: Path | None, exports: "Iterable[Export]") -> None:
    from autotune.retune.incumbent import find_incumbent
    from autotune.retune.publish import roll_back

    for path in roll_back(find_incumbent(study, storage, out).root, exports):
        typer.echo(f"Put back {path}")
