"""``autotune check``: what is wrong with a launch command, before anything is started."""

import sys
from pathlib import Path
from typing import Annotated

import typer

FOUND = 1


def check(
    target: Annotated[
        list[str],
        typer.Argument(
            metavar="TARGET",
            help="A `vllm serve ...` line in quotation marks, or a file: shell script, vLLM YAML, systemd unit, "
            "Docker Compose or Kubernetes YAML; - reads standard input.",
            show_default=False,
        ),
    ],
    vllm: Annotated[
        str, typer.Option("--vllm", help="The version to judge for, such as 0.33.0; installed means the one here.")
    ] = "installed",
    gpu: Annotated[
        str | None,
        typer.Option(
            envvar="AUTOTUNE_GPU",
            help="A name such as rtx-4090 or h200, or a GPU's index or UUID, or cpu (default: this machine's GPU).",
            show_default=False,
        ),
    ] = None,
    model_config: Annotated[
        Path | None, typer.Option(help="The model's config.json, where it cannot be found.", show_default=False)
    ] = None,
    vllm_python: Annotated[
        Path | None,
        typer.Option(envvar="AUTOTUNE_VLLM_PYTHON", help="The Python that has vLLM (default: found)."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what is wrong with a launch command: flags, values, memory, the model and the GPU it is meant for.

    The exit code is 0 where nothing was found (advice alone does not count), 1 where something was, and 2 where the
    target cannot be used.
    """
    from autotune.check.check import check_target
    from autotune.check.gpus import find_device
    from autotune.check.models import read_config_file
    from autotune.cli.check_view import print_report

    text = target[0] if len(target) == 1 else _joined(target)
    report = check_target(
        text,
        vllm=vllm,
        device=find_device(gpu),
        model_config=read_config_file(model_config) if model_config else None,
        python=vllm_python,
        stdin=sys.stdin.read() if text == "-" else None,
    )
    print_report(report, as_json=json)
    if not report.clean:
        raise typer.Exit(FOUND)


def _joined(words: list[str]) -> str:
    """``autotune check -- vllm serve MODEL ...`` without quotation marks."""
    import shlex

    return shlex.join(words)
