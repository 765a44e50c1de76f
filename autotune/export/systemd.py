"""A hardened systemd unit that counts as started once vLLM is healthy and has answered one request.

``DynamicUser`` gives the service a user without a home or a password; it reads the model wherever it lies and
writes its caches only. JIT compilation needs memory that is writable and executable, and CUDA its device files,
so ``MemoryDenyWriteExecute`` is not set, and ``PrivateDevices`` on a CPU only. Whatever may differ between
machines (SERVE_HOST, SERVE_PORT, VLLM, secrets) is read from ``/etc/NAME.env``.
"""

import json

from autotune.export.options import DEFAULT_OPTIONS, ExportOptions
from autotune.export.provenance import comment_lines
from autotune.export.serving import PORT, Serving, serving
from autotune.export.text import flag_groups, render_template
from autotune.store.recommendation import Recommendation

_WARM_UP_TOKENS = 16


def render(recommendation: Recommendation, options: ExportOptions = DEFAULT_OPTIONS) -> str:
    """The unit's text."""
    s = serving(recommendation)
    usage = [
        f"Use: install -m 644 FILE /etc/systemd/system/{s.name}.service; systemctl daemon-reload;",
        f"     systemctl enable --now {s.name}; journalctl -u {s.name} -f",
        "Needs curl. The user of the service must be able to read the model and vLLM's Python.",
    ]
    values = {
        "head": comment_lines(recommendation, usage=usage),
        "name": s.name,
        "served_name": s.served_name,
        "model": s.model,
        "vllm": options.vllm,
        "port": PORT,
        "env": s.launch.env,
        "secrets": s.secrets,
        "gpus": s.gpus,
        "startup_s": s.startup_s,
        "arguments": flag_groups(s.launch.argv()),
        "warm_up": warm_up(s),
    }
    return render_template("unit.service.jinja", {"word": word, "value": value, "plain": plain}, values)


def warm_up(s: Serving) -> str:
    """The shell commands that wait for ``/health`` and send one request; they end when the engine does."""
    body = json.dumps({"model": s.served_name, "prompt": "Hello", "max_tokens": _WARM_UP_TOKENS})
    quoted = body.replace("'", "'\\''")
    return (
        'url="http://$SERVE_HOST:$SERVE_PORT"; '
        'until curl -fsS -o /dev/null --max-time 5 "$url/health" 2>/dev/null; '
        'do kill -0 "$MAINPID"; sleep 1; done; '
        'curl -fsS -o /dev/null --max-time 300 -H "Content-Type: application/json" '
        '${VLLM_API_KEY:+-H "Authorization: Bearer $VLLM_API_KEY"} '
        f"-d '{quoted}' \"$url/v1/completions\""
    )


def word(text: str) -> str:
    """One word of a command line: neither split nor expanded by systemd."""
    return value(text.replace("$", "$$"))


def value(text: str) -> str:
    """A quoted value, in which systemd expands specifiers but no variables."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("\n", "\\n")
    return f'"{escaped}"'


def plain(text: str) -> str:
    """Unquoted text after a key."""
    return " ".join(text.replace("%", "%%").replace("\\", "\\\\").split())
