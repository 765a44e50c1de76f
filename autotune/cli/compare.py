"""``autotune compare``: precisions of one model by memory, speed and quality."""

from pathlib import Path
from typing import Annotated

import typer


def compare(
    model: Annotated[str, typer.Argument(help="Model folder or hub id, as published: the reference.")],
    variant: Annotated[
        list[str] | None, typer.Option(help="Another checkpoint (FP8, AWQ, GPTQ), folder or hub id; may be repeated.")
    ] = None,
    precision: Annotated[
        list[str] | None,
        typer.Option(help="A flag like kv-cache-dtype=fp8 (default: all of the search space); may be repeated."),
    ] = None,
    gpu: Annotated[str | None, typer.Option(envvar="AUTOTUNE_GPU", help="auto, a GPU's index or UUID, or cpu.")] = None,
    workload: Annotated[
        str | None, typer.Option(envvar="AUTOTUNE_WORKLOAD", help="A preset's name or a workload file.")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(envvar="AUTOTUNE_CONCURRENCY", help="Requests in flight (default: the workload's).")
    ] = None,
    window: Annotated[str | None, typer.Option(help="Shortest scored window of a point.")] = None,
    max_quality_loss: Annotated[
        str | None, typer.Option(help="The level to judge by: none, tiny (default), small, any.")
    ] = None,
    quality_data: Annotated[
        Path | None, typer.Option(help="Your prompts to measure quality on (JSON lines or text).")
    ] = None,
    vllm_python: Annotated[
        Path | None,
        typer.Option(envvar="AUTOTUNE_VLLM_PYTHON", help="The Python that has vLLM (default: found)."),
    ] = None,
    vllm_arg: Annotated[
        list[str] | None,
        typer.Option("--vllm-arg", help="Flag for every engine, such as --vllm-arg=--max-num-seqs=64."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for logs and the database.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON.")] = False,
) -> None:
    """Measure the model as published and each other precision on this machine: memory, speed, quality."""
    from autotune.report.quality import print_compared
    from autotune.tuner.compare import compare_precisions
    from autotune.tuner.settings import resolve_settings

    given = {
        "model": model,
        "variant": variant,
        "gpu": gpu,
        "workload": workload,
        "concurrency": concurrency,
        "window": window,
        "max_quality_loss": max_quality_loss,
        "quality_data": quality_data,
        "vllm_python": vllm_python,
        "vllm_arg": vllm_arg,
        "out": out,
    }
    found = compare_precisions(resolve_settings(given), precision or ())
    print_compared(found.rows, found.unit, f"{found.model} on {found.device}", as_json=json)
