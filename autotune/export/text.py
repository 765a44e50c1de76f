"""Templates of the formats whose text is too long to be put together in Python."""

import shlex
from collections.abc import Callable, Iterable, Mapping
from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined


def render_template(name: str, filters: Mapping[str, Callable[[str], str]], values: Mapping[str, Any]) -> str:
    """The text of ``templates/NAME``. ``quote`` is always there: one word for a POSIX shell."""
    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, autoescape=False
    )
    environment.filters.update({"quote": shlex.quote, **filters})
    source = (resources.files("autotune.export") / "templates" / name).read_text(encoding="utf-8")
    return environment.from_string(source).render(**values)


def flag_groups(words: Iterable[str]) -> list[list[str]]:
    """Each flag with its value, a group a line; what comes before the first flag is a group of its own."""
    groups: list[list[str]] = []
    for word in words:
        if word.startswith("--") or not groups:
            groups.append([word])
        else:
            groups[-1].append(word)
    return groups
