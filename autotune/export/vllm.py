"""YAML for ``vllm serve MODEL --config FILE``.

A switched-off flag is written as ``no-FLAG: true``, which every vLLM version since 0.10 reads; JSON
values are written as nested mappings. The file cannot carry environment variables: they stand in the
head as comments, and ``launch.sh`` sets them.
"""

import json
from typing import Any

import yaml

from autotune.export.provenance import comment_lines
from autotune.space.config import FlagValue
from autotune.store.recommendation import Recommendation


def render(recommendation: Recommendation) -> str:
    """The file's text."""
    launch = recommendation.launch
    head = comment_lines(recommendation)
    if launch.env:
        head += ["# Set these variables as well:", *(f"#   {name}={value}" for name, value in launch.env)]
    body = dict(_entry(name, value) for name, value in launch.flags)
    text = yaml.safe_dump(body, sort_keys=True, default_flow_style=False) if body else "{}\n"
    return "\n".join(head) + "\n" + text


def _entry(name: str, value: FlagValue) -> tuple[str, Any]:
    if value is False:
        return f"no-{name}", True
    if isinstance(value, str) and value.startswith(("{", "[")):
        return name, json.loads(value)
    return name, value
