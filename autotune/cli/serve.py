"""``autotune serve``: start vLLM with the best configuration that is known for this machine."""

import shlex
from pathlib import Path
from typing import Annotated

import typer


def serve(
    model: Annotated[str, typer.Argument(help="Model folder or hub id.")],
    extra: Annotated[
        list[str] | None, typer.Argument(metavar="[-- VLLM_ARGS]", help="Further arguments for vLLM; they win.")
    ] = None,
    gpu: Annotated[str, typer.Option(envvar="AUTOTUNE_GPU", help="auto, a GPU's index or UUID, or cpu.")] = "auto",
    workload: Annotated[
        str | None, typer.Option(envvar="AUTOTUNE_WORKLOAD", help="Prefer a configuration tuned for this workload.")
    ] = None,
    objective: Annotated[
        str | None, typer.Option(envvar="AUTOTUNE_OBJECTIVE", help="Prefer one tuned for this objective.")
    ] = None,
    vllm_python: Annotated[
        Path | None, typer.Option(envvar="AUTOTUNE_VLLM_PYTHON", help="The Python that has vLLM (default: found).")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the command instead of running it.")] = False,
) -> None:
    """Start vLLM with the best configuration that earlier runs found for this model on this machine."""
    from autotune.export.serve import ServeRequest, plan_launch, start

    launch = plan_launch(
        ServeRequest(
            model=model,
            gpu=gpu,
            workload=workload,
            objective=objective,
            vllm_python=vllm_python,
            extra=tuple(extra or ()),
        )
    )
    for line in launch.remarks:
        typer.echo(line, err=True)
    if dry_run:
        typer.echo(shlex.join(launch.argv))
        return
    start(launch)
