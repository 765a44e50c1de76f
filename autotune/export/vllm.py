"""YAML for ``vllm serve MODEL --config FILE``.

A switched-off flag is written as ``no-FLAG: true``, which every vLLM version since 0.10 reads; JSON
values are written as nested mappings. The file cannot carry environment variables: they stand in the
head as comments, and ``launch.sh`` sets them.
"""

import json
from typing import Any

import yaml

from autotune.export.options import DEFAULT_OPTIONS, ExportOptions
from autotune.export.provenance import comment_lines
from autotune.export.serving import public_launch
from autotune.space.config import FlagValue
from autotune.store.recommendation import Recommendation


def render(recommendation: Recommendation, options: ExportOptions = DEFAULT_OPTIONS) -> str:
    """The file's text."""
    del options  # nothing in it depends on the host or an image
    launch, secrets = public_launch(recommendation)
    usage = [f"Set before you start it: {', '.join(secrets)}."] if secrets else []
    if launch.env:
        usage += ["Set these variables as well:", *(f"  {name}={value}" for name, value in launch.env)]
    head = comment_lines(recommendation, usage=usage)
    body = dict(_entry(name, value) for name, value in launch.flags)
    text = yaml.safe_dump(body, sort_keys=True, default_flow_style=False) if body else "{}\n"
    return "\n".join(head) + "\n" + text


def _entry(name: str, value: FlagValue) -> tuple[str, Any]:
    if value is False:
        return f"no-{name}", True
    if isinstance(value, str) and value.startswith(("{", "[")):
        return name, json.loads(value)
    return name, value
