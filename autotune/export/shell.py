"""A POSIX shell script that starts the engine; arguments given to it are passed on to vLLM."""

import shlex

from autotune.export.provenance import comment_lines
from autotune.store.recommendation import Recommendation


def render(recommendation: Recommendation) -> str:
    """The script's text. HOST, PORT and VLLM may be set by the caller; the default host is loopback."""
    launch = recommendation.launch
    words = [
        shlex.quote(recommendation.provenance.model),
        '--host "${HOST:-127.0.0.1}"',
        '--port "${PORT:-8000}"',
    ]
    flags = _flag_lines(launch.argv())
    lines = [
        "#!/bin/sh",
        *comment_lines(recommendation),
        "set -eu",
        *(f"export {name}={shlex.quote(value)}" for name, value in launch.env),
        " \\\n  ".join(['exec "${VLLM:-vllm}" serve', *words, *flags, '"$@"']),
    ]
    return "\n".join(lines) + "\n"


def _flag_lines(argv: list[str]) -> list[str]:
    """One flag with its value a line."""
    lines: list[str] = []
    for word in argv:
        if word.startswith("--") or not lines:
            lines.append(shlex.quote(word))
        else:
            lines[-1] += " " + shlex.quote(word)
    return lines
