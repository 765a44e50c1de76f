"""``autotune reap``: end the engines that a killed tuner left behind."""

from typing import Annotated

import typer


def reap(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be ended.")] = False,
) -> None:
    """End engine processes whose tuner was killed. Engines of running tuners, and all else, are left alone."""
    from autotune.engine.reap import find_leftovers
    from autotune.engine.reap import reap as end_leftovers
    from autotune.errors import EnvironmentFault

    leftovers = find_leftovers()
    if not leftovers:
        typer.echo("Nothing is left behind.")
        return
    for leftover in leftovers:
        where = f"run {leftover.run_id}, tuner {leftover.tuner_pid} is gone"
        typer.echo(f"pid {leftover.process.pid}  {leftover.command[:80]}  ({where})")
    if dry_run:
        typer.echo(f"{len(leftovers)} would be ended.")
        return
    report = end_leftovers(leftovers)
    if report.survivors:
        pids = ", ".join(map(str, report.survivors))
        raise EnvironmentFault(f"pid {pids} cannot be ended, probably stuck in the driver. Reboot to get rid of it.")
    typer.echo(f"{len(leftovers)} ended in {report.stop_s:.1f} s.")
