"""An environment file: the launch config's variables, the model and the arguments as one line.

Its quotes are read alike by a POSIX shell, by systemd's ``EnvironmentFile=`` and by Compose's ``env_file``.
Arguments are written ``--flag=value`` without blanks wherever they have none, so that a launcher may split them.
"""

import shlex

from autotune.export.options import DEFAULT_OPTIONS, ExportOptions
from autotune.export.provenance import comment_lines
from autotune.export.serving import serving
from autotune.space.config import FlagValue
from autotune.store.recommendation import Recommendation


def render(recommendation: Recommendation, options: ExportOptions = DEFAULT_OPTIONS) -> str:
    """The file's text."""
    del options  # nothing in it depends on the host or an image
    s = serving(recommendation)
    words = [_word(name, value) for name, value in s.launch.flags]
    pairs = [*s.launch.env, ("MODEL", s.model), ("SERVE_ARGS", shlex.join(words))]
    usage = [
        'In a shell: set -a; . ./FILE; set +a; eval "exec vllm serve \\"\\$MODEL\\" --host 127.0.0.1 $SERVE_ARGS"',
        f"Set elsewhere, if you need them: {', '.join(s.secrets)}.",
    ]
    lines = [*comment_lines(recommendation, usage=usage), *(f"{n}={shlex.quote(v)}" for n, v in pairs)]
    return "\n".join(lines) + "\n"


def _word(name: str, value: FlagValue) -> str:
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    return f"--{name}={value}"
