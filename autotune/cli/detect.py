"""``autotune detect``: what this machine is, and what a run would do with it."""

from pathlib import Path
from typing import Annotated

import typer


def detect(
    gpu: Annotated[str, typer.Option(envvar="AUTOTUNE_GPU", help="auto, a GPU's index or UUID, or cpu.")] = "auto",
    vllm_python: Annotated[
        Path | None,
        typer.Option(envvar="AUTOTUNE_VLLM_PYTHON", help="The Python that has vLLM (default: found)."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Show the GPUs, the CPU, every vLLM that can be found, and the search space that would be chosen."""
    from autotune.cli.survey_view import print_survey
    from autotune.tuner.survey import survey

    print_survey(survey(gpu, vllm_python), as_json=json)
