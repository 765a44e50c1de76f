"""``autotune schedule``: the nightly re-tune as a systemd timer, a crontab line or a Kubernetes CronJob."""

from pathlib import Path
from typing import Annotated

import typer


def schedule(
    study: Annotated[str, typer.Argument(metavar="STUDY", help="What `autotune retune` would be given.")],
    kind: Annotated[str, typer.Option("--kind", "-k", help="systemd, cron or kubernetes.")] = "systemd",
    window: Annotated[
        str, typer.Option(help="When it may run, by the machine's clock; it starts then and never goes beyond.")
    ] = "02:00-05:00",
    notify: Annotated[
        str | None,
        typer.Option(help="Shell command on hold or error; $AUTOTUNE_VERDICT, _SUMMARY and _REPORT tell it why."),
    ] = None,
    export: Annotated[
        list[str] | None,
        typer.Option("--export", metavar="FORMAT=FILE", help="A file to replace when a configuration is adopted."),
    ] = None,
    new_python: Annotated[
        Path | None,
        typer.Option("--new-python", envvar="AUTOTUNE_VLLM_PYTHON", help="The vLLM's Python to look at every night."),
    ] = None,
    old_python: Annotated[
        Path | None, typer.Option("--old-python", help="The Python of the old vLLM (default: the recorded one).")
    ] = None,
    gpu: Annotated[str, typer.Option(envvar="AUTOTUNE_GPU", help="auto, a GPU's index or UUID, or cpu.")] = "auto",
    retune_arg: Annotated[
        list[str] | None,
        typer.Option("--retune-arg", help="A further word for retune, such as --no-search."),
    ] = None,
    image: Annotated[
        str | None, typer.Option("--image", help="Container image with autotune and vLLM (kubernetes).")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write the files to.")] = Path("."),
    install: Annotated[
        bool, typer.Option("--install", help="Enable it now: systemd timer, or this user's crontab.")
    ] = False,
) -> None:
    """Write what runs `autotune retune` every night, and enable it with --install.

    One run at a time, inside the window only, and not while somebody uses the GPU.
    """
    from autotune.errors import UsageError
    from autotune.export.files import write_atomic
    from autotune.retune.job import make_job
    from autotune.retune.schedule import (
        KINDS,
        Runner,
        cron_job,
        cron_line,
        install_cron,
        install_systemd,
        systemd_units,
    )

    if kind not in KINDS:
        raise UsageError(f"--kind {kind!r} is unknown. Use one of: {', '.join(KINDS)}.")
    job, gpus = make_job(
        study,
        window,
        notify=notify,
        exports=export or (),
        new_python=new_python,
        old_python=old_python,
        gpu=gpu,
        more=retune_arg or (),
        inside_container=kind == "kubernetes",
    )
    if install:
        if kind == "kubernetes":
            raise UsageError("a CronJob is enabled by kubectl: leave --install out and apply the file.")
        for line in (install_systemd if kind == "systemd" else install_cron)(job, Runner()):
            typer.echo(line)
        return
    files = systemd_units(job) if kind == "systemd" else {}
    if kind == "cron":
        files = {f"{job.name}.cron": f"# {job.name}\n{cron_line(job)}\n"}
    if kind == "kubernetes":
        files = {f"{job.name}.yaml": cron_job(job, image, gpus)}
    for name, text in files.items():
        write_atomic(out / name, text)
        typer.echo(f"Wrote {out / name}")
