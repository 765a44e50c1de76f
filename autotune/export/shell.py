"""A POSIX shell script that starts the engine; arguments given to it are passed on to vLLM."""

import shlex

from autotune.export.options import DEFAULT_OPTIONS, ExportOptions
from autotune.export.provenance import comment_lines
from autotune.export.serving import public_launch
from autotune.export.text import flag_groups
from autotune.store.recommendation import Recommendation


def render(recommendation: Recommendation, options: ExportOptions = DEFAULT_OPTIONS) -> str:
    """The script's text. HOST, PORT and VLLM may be set by the caller; the default host is loopback."""
    launch, secrets = public_launch(recommendation)
    words = [
        shlex.quote(recommendation.provenance.model),
        '--host "${HOST:-127.0.0.1}"',
        '--port "${PORT:-8000}"',
    ]
    flags = [shlex.join(group) for group in flag_groups(launch.argv())]
    usage = ["HOST, PORT and VLLM (the command) may be set by the caller; VLLM_API_KEY is read by vLLM itself."]
    if secrets:
        usage.append(f"Set before you start it: {', '.join(secrets)}.")
    lines = [
        "#!/bin/sh",
        *comment_lines(recommendation, usage=usage),
        "set -eu",
        *(f"export {name}={shlex.quote(value)}" for name, value in launch.env),
        f"VLLM=${{VLLM:-{shlex.quote(options.vllm)}}}",
        " \\\n  ".join(['exec "$VLLM" serve', *words, *flags, '"$@"']),
    ]
    return "\n".join(lines) + "\n"
