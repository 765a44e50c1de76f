"""``autotune export``: a study's recommendation as the file that a launcher starts from."""

from pathlib import Path
from typing import Annotated

import typer

FORMAT_HELP = (
    "vllm, shell, systemd, docker, compose, kubernetes, kserve, llm-d, helm, ray-serve, env or json (--list explains)."
)


def export(
    study: Annotated[
        str | None, typer.Argument(metavar="STUDY", help="The study's folder, its study.db, or its name.")
    ] = None,
    format_name: Annotated[str, typer.Option("--format", "-f", help=FORMAT_HELP)] = "vllm",
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE|-", help="Where to (default: the format's own name, here)."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that holds something else.")] = False,
    image: Annotated[
        str | None, typer.Option("--image", help="Container image with its tag (default: the measured version's).")
    ] = None,
    vllm_python: Annotated[
        Path | None,
        typer.Option(envvar="AUTOTUNE_VLLM_PYTHON", help="The Python whose vLLM shell and systemd start."),
    ] = None,
    storage: Annotated[
        str | None, typer.Option(envvar="AUTOTUNE_STORAGE", help="SQLAlchemy URL that holds the study STUDY.")
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="Show the formats and end.")] = False,
) -> None:
    """Write a study's recommendation as the file that a launcher starts from."""
    from autotune.errors import UsageError
    from autotune.export.formats import FORMATS, find_format
    from autotune.export.options import ExportOptions
    from autotune.export.provenance import KEEP_DEFAULT
    from autotune.export.study import find_study, save, vllm_command

    if listing:
        for name, each in FORMATS.items():
            typer.echo(f"{name:<11} {each.help} ({each.file_name})")
        return
    if study is None:
        raise UsageError("no study was given. Give its folder, such as: autotune export autotune-out/NAME")
    chosen = find_format(format_name)
    found = find_study(study, storage)
    options = ExportOptions(image=image, vllm=vllm_command(vllm_python or found.vllm_python))
    text = chosen.render(found.recommendation, options)
    if found.recommendation.verdict == "keep-default":
        typer.echo(KEEP_DEFAULT, err=True)
    if output == "-":
        typer.echo(text, nl=False)
        return
    path = Path(output or chosen.file_name)
    changed = save(path, text, executable=chosen.executable, force=force)
    typer.echo(f"{'Wrote' if changed else 'Unchanged:'} {path}", err=True)
