"""The longest context that one vLLM version allows a model.

It is ``max_position_embeddings`` of the config.json, stretched by rope scaling. How YaRN stretches changed: up to
0.29 the length was the original one times the factor, since 0.30 ``max_position_embeddings`` is taken to be
scaled already (read in vLLM's ``config/model.py``). Settings that overlay the config.json count.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from packaging.version import Version

from autotune.check.arguments import Arguments
from autotune.space.rules import is_number

YARN_IS_SCALED_SINCE = Version("0.30")
_LENGTH_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length", "n_ctx")
_NOT_STRETCHED = ("default", "su", "longrope", "llama3", "mrope", "proportional")
_YARN = ("yarn", "deepseek_yarn", "deepseek_llama_scaling")


@dataclass(frozen=True, slots=True)
class Context:
    """``tokens`` is the limit, ``stated`` the config.json's own number, ``scaling`` the kind of rope scaling."""

    tokens: int
    stated: int
    scaling: str = "default"


def allowed_context(config: Mapping[str, Any], arguments: Arguments, version: Version) -> Context | None:
    """The limit, or None where the config.json states none."""
    text = config.get("text_config")
    merged = {**config, **(text if isinstance(text, Mapping) else {})}
    overrides = arguments.nested("hf-overrides")
    nested = overrides.get("text_config")
    merged |= overrides | (nested if isinstance(nested, dict) else {})
    stated = next((merged[key] for key in _LENGTH_KEYS if isinstance(merged.get(key), int)), None)
    if stated is None:
        return None
    scaling = arguments.nested("rope-scaling") or _scaling(merged, overrides)
    kind = str(scaling.get("rope_type") or scaling.get("type") or "default")
    return Context(_stretched(stated, scaling, kind, str(merged.get("model_type", "")), version), stated, kind)


def _scaling(merged: Mapping[str, Any], overrides: Mapping[str, Any]) -> Mapping[str, Any]:
    """The rope settings; one that is given on the command line wins over either key of the file."""
    for source in (overrides, merged):
        for key in ("rope_parameters", "rope_scaling"):
            if isinstance(source.get(key), Mapping):
                return dict(source[key])
    return {}


def _stretched(stated: int, scaling: Mapping[str, Any], kind: str, model_type: str, version: Version) -> int:
    factor = scaling.get("factor")
    if kind in _NOT_STRETCHED or not is_number(factor) or "gemma3" in model_type:
        return stated
    if kind in _YARN and version >= YARN_IS_SCALED_SINCE:
        return stated
    original = scaling.get("original_max_position_embeddings")
    base = original if kind in _YARN and isinstance(original, int) else stated
    return int(base * float(str(factor)))


def yarn_override(config: Mapping[str, Any], wanted: int, version: Version) -> str:
    """What makes vLLM accept ``wanted`` tokens: the override in the form that this version understands."""
    stated = next((config[key] for key in _LENGTH_KEYS if isinstance(config.get(key), int)), 32768)
    original = 32768 if stated == 40960 else stated
    factor = max(1.0, -(-wanted * 10 // original) / 10)
    theta = config.get("rope_theta") or 1_000_000
    rope = f'"rope_type": "yarn", "factor": {factor:g}, "original_max_position_embeddings": {original}'
    if version < Version("0.11"):
        return f"--rope-scaling '{{{rope}}}'"
    if version < Version("0.12"):
        return f"--hf-overrides '{{\"rope_scaling\": {{{rope}}}}}'"
    if version < YARN_IS_SCALED_SINCE:
        return f'--hf-overrides \'{{"rope_parameters": {{{rope}, "rope_theta": {theta:.0f}}}}}\''
    return (
        f'--hf-overrides \'{{"rope_parameters": {{{rope}, "rope_theta": {theta:.0f}}}, '
        f'"max_position_embeddings": {wanted}}}\''
    )
