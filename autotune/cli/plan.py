"""``autotune plan``: what ``autotune run`` would do with the same options. Its options are those of ``run``."""

import inspect
from typing import Any

from autotune.cli.run import given, run


def plan(**options: Any) -> None:
    """Show what a run with these options would try, what it leaves out and why, and what it would cost."""
    from autotune.cli.plan_view import print_plan
    from autotune.tuner.planning import look_ahead
    from autotune.tuner.settings import resolve_settings

    print_plan(look_ahead(resolve_settings(given(options))), as_json=options["json"])


# typer reads both.
plan.__signature__ = inspect.signature(run)  # type: ignore[attr-defined]
plan.__annotations__ = run.__annotations__
