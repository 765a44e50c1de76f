"""What a checkpoint's ``config.json`` says about a model, as far as it decides which settings make sense."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from autotune.errors import UsageError
from autotune.space.rules import is_number

Attention = Literal["mha", "gqa", "mla", "none"]

_DTYPES = {"torch.bfloat16": "bfloat16", "torch.float16": "float16", "half": "float16", "float": "float32"}
_RECURRENT_KEYS = (
    "linear_num_key_heads",
    "mamba_d_state",
    "mamba_num_heads",
    "ssm_state_size",
    "conv_L_cache",
)
_EXPERT_KEYS = ("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts")
_STRETCHING = ("linear", "dynamic", "yarn")
_SIZES = (
    "hidden_size",
    "n_embd",
    "num_hidden_layers",
    "n_layer",
    "num_attention_heads",
    "n_head",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
)
_LENGTH_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """A model's shape; None where the checkpoint does not say.

    ``dtype`` is the checkpoint's (``bfloat16``, ``float16``, ``float32``), ``quantization`` its quantisation
    method. ``hybrid``: layers with a recurrent state beside attention. ``sliding_window`` and
    ``max_position_embeddings`` (the longest context, rope scaling included) are tokens.
    """

    architecture: str = ""
    dtype: str | None = None
    quantization: str | None = None
    attention: Attention = "gqa"
    moe: bool = False
    hybrid: bool = False
    head_size: int | None = None
    layers: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    hidden_size: int | None = None
    vocab_size: int | None = None
    sliding_window: int | None = None
    max_position_embeddings: int | None = None

    @property
    def quantized(self) -> bool:
        return self.quantization is not None

    @classmethod
    def from_config_json(cls, source: Path | Mapping[str, Any]) -> "ModelFacts":
        """Read a config.json, a folder that holds one, or its parsed content.

        Raises ``UsageError`` where the file is missing or holds no JSON object.
        """
        return _facts(source if isinstance(source, Mapping) else _read(source))


def _read(path: Path) -> Mapping[str, Any]:
    file = path / "config.json" if path.is_dir() else path
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read the model's {file}: {error.strerror or error}") from error
    except ValueError as error:
        raise UsageError(f"{file} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise UsageError(f"{file} holds no JSON object, so it is not a model's config.json")
    return content


def broken_size(config: Mapping[str, Any]) -> str | None:
    """The first size in a config.json that no model can have, as ``key = value``; None where all can be.

    Lists (one value per layer) and what is left out (the architecture's default) are the model's own business.
    """
    nested = config.get("text_config")
    text = {**config, **nested} if isinstance(nested, Mapping) else config
    for key in _SIZES:
        value = text.get(key)
        wrong = isinstance(value, (bool, str)) or (
            isinstance(value, (int, float)) and not (value >= 1 and value % 1 == 0)
        )
        if wrong:
            return f"{key} = {value!r}"
    return None


def _facts(config: Mapping[str, Any]) -> ModelFacts:
    nested = config.get("text_config")
    text: Mapping[str, Any] = {**config, **nested} if isinstance(nested, Mapping) else config
    heads = _whole(text, "num_attention_heads", "n_head")
    kv_heads = _whole(text, "num_key_value_heads") or heads
    names = config.get("architectures")
    return ModelFacts(
        architecture=str(names[0]) if isinstance(names, list) and names else "",
        dtype=_dtype(text) or _dtype(config),
        quantization=_quantization(text),
        attention=_attention(text, heads, kv_heads),
        moe=(_whole(text, *_EXPERT_KEYS) or 0) > 1,
        hybrid=any(key in text for key in _RECURRENT_KEYS),
        head_size=_head_size(text, heads),
        layers=_whole(text, "num_hidden_layers", "n_layer"),
        heads=heads,
        kv_heads=kv_heads,
        hidden_size=_whole(text, "hidden_size", "n_embd"),
        vocab_size=_whole(text, "vocab_size"),
        sliding_window=_sliding_window(text),
        max_position_embeddings=_longest(text),
    )


def _whole(config: Mapping[str, Any], *keys: str) -> int | None:
    values = (config.get(key) for key in keys)
    return next((v for v in values if isinstance(v, int) and not isinstance(v, bool)), None)


def _dtype(config: Mapping[str, Any]) -> str | None:
    name = config.get("dtype") or config.get("torch_dtype")
    return _DTYPES.get(str(name), str(name)) if name else None


def _quantization(config: Mapping[str, Any]) -> str | None:
    section = config.get("quantization_config") or config.get("compression_config")
    if not isinstance(section, Mapping):
        return None
    return str(section.get("quant_method") or "unknown")


def _attention(config: Mapping[str, Any], heads: int | None, kv_heads: int | None) -> Attention:
    if config.get("kv_lora_rank"):
        return "mla"
    if heads is None:
        return "none"
    return "mha" if kv_heads == heads else "gqa"


def _head_size(config: Mapping[str, Any], heads: int | None) -> int | None:
    latent = _whole(config, "kv_lora_rank")
    if latent:
        return latent + (_whole(config, "qk_rope_head_dim") or 0)
    stated, hidden = _whole(config, "head_dim"), _whole(config, "hidden_size", "n_embd")
    return stated or (hidden // heads if hidden and heads else None)


def _sliding_window(config: Mapping[str, Any]) -> int | None:
    if config.get("use_sliding_window") is False:
        return None
    return _whole(config, "sliding_window") or None


def _longest(config: Mapping[str, Any]) -> int | None:
    stated = _whole(config, *_LENGTH_KEYS)
    scaling = config.get("rope_scaling") or config.get("rope_parameters")
    if stated is None or not isinstance(scaling, Mapping):
        return stated
    factor = scaling.get("factor")
    if str(scaling.get("rope_type") or scaling.get("type")) not in _STRETCHING or not is_number(factor):
        return stated
    return int((_whole(scaling, "original_max_position_embeddings") or stated) * float(str(factor)))
