"""What a model's config.json and safetensors headers say about its memory.

A layer keeps one of four things per request:

    full      keys and values of every token              2 x kv heads x head size
    sliding   the same, of the last ``window`` tokens
    latent    one compressed vector per token (MLA)       kv_lora_rank + qk_rope_head_dim, on every TP rank
    state     a constant state (Mamba, linear attention)

Weights are the sum of the tensors' bytes where the safetensors headers can be read: exact, also for
quantized checkpoints. Else they are estimated from the shape. Nothing here needs torch or vLLM, and the
tensors themselves are never read.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

_DTYPE_BYTES = {"float32": 4, "float": 4, "float16": 2, "half": 2, "bfloat16": 2, "auto": 2}
# Bits per element once loaded: float32 and float64 become half precision.
_TENSOR_BITS = {
    "F64": 16, "F32": 16, "F16": 16, "BF16": 16, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F6_E2M3": 6, "F6_E3M2": 6,
    "F4": 4, "I64": 64, "U64": 64, "I32": 32, "U32": 32, "I16": 16, "U16": 16, "I8": 8, "U8": 8, "BOOL": 8,
}  # fmt: skip
# Never quantized while loading: embeddings, the head, norms, biases, routers.
_UNQUANTIZED = re.compile(r"embed|lm_head|norm|bias|\.gate\.weight|router|visual|vision|audio")
_MAX_HEADER = 100 << 20


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The parts of a model that take memory. Counts of layers; sizes in elements unless they say bytes.

    ``weights_bytes`` is the whole checkpoint, ``linear_bytes`` the part that an online quantization shrinks;
    ``weights_exact`` tells whether they come from the files. ``active_intermediate`` is the width of the
    widest feed-forward layer that one token passes (all its experts together).
    """

    architecture: str
    hidden: int
    vocab: int
    heads: int
    kv_heads: int
    head_size: int
    full_layers: int
    sliding_layers: int
    latent_layers: int
    state_layers: int
    window: int
    latent_size: int
    active_intermediate: int
    max_length: int | None
    dtype_bytes: int
    kv_dtype_bytes: int
    quantization: str | None
    weights_bytes: int
    linear_bytes: int
    weights_exact: bool

    @property
    def layers(self) -> int:
        """All layers, whatever they keep."""
        return self.full_layers + self.sliding_layers + self.latent_layers + self.state_layers


def read_model_shape(folder: Path) -> ModelShape | None:
    """The shape of a model in a local folder; None where config.json is missing or says too little."""
    try:
        config = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError):
        return None
    return shape_of(config, read_tensor_bytes(folder)) if isinstance(config, dict) else None


def shape_of(config: Mapping[str, Any], tensors: Mapping[str, int] | None = None) -> ModelShape | None:
    """The shape that a config.json describes; ``tensors`` holds bytes by tensor name where known."""
    text = _text_config(config)
    layers = _number(text, "num_hidden_layers", "n_layer", "num_layers", "n_layers")
    hidden = _number(text, "hidden_size", "n_embd", "d_model", "dim")
    heads = _number(text, "num_attention_heads", "n_head", "num_heads", "n_heads")
    if not layers or not hidden or not heads:
        return None
    kinds = _layer_kinds(text, layers)
    dtype_bytes = _DTYPE_BYTES.get(str(text.get("dtype") or text.get("torch_dtype") or "auto"), 2)
    quantization = _mapping(config, "quantization_config") or _mapping(text, "quantization_config")
    weights, linear, exact = _weights(text, layers, hidden, dtype_bytes, quantization, tensors)
    return ModelShape(
        architecture=next(iter(config.get("architectures") or ["unknown"])),
        hidden=hidden,
        vocab=_number(text, "vocab_size", "padded_vocab_size") or 0,
        heads=heads,
        kv_heads=_kv_heads(text, heads),
        head_size=_number(text, "head_dim", "attention_head_dim", "kv_channels") or hidden // heads,
        full_layers=kinds.count("full"),
        sliding_layers=kinds.count("sliding"),
        latent_layers=kinds.count("latent"),
        state_layers=kinds.count("state"),
        window=_window(text) or 0,
        latent_size=(_number(text, "kv_lora_rank") or 0) + (_number(text, "qk_rope_head_dim") or 0),
        active_intermediate=_active_intermediate(text, hidden),
        max_length=_number(text, "max_position_embeddings", "n_positions", "max_seq_len", "seq_length"),
        dtype_bytes=dtype_bytes,
        kv_dtype_bytes=1 if _has_small_kv(quantization) else dtype_bytes,
        quantization=str(quantization.get("quant_method")) if quantization else None,
        weights_bytes=weights,
        linear_bytes=linear,
        weights_exact=exact,
    )  # fmt: skip


def read_tensor_bytes(folder: Path) -> dict[str, int] | None:
    """Bytes that every tensor of the folder's safetensors files takes once loaded; None where none can be read.

    32-bit tensors count as 16-bit ones, because vLLM loads such checkpoints in half precision.
    """
    tensors: dict[str, int] = {}
    try:
        for path in _weight_files(folder):
            tensors |= _header_bytes(path)
    except (OSError, ValueError, KeyError):
        return None
    return tensors or None


def _weight_files(folder: Path) -> list[Path]:
    """The files that vLLM loads: those of the index; a folder may hold the same weights twice."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        names = set(json.loads(index.read_text())["weight_map"].values())
        return [folder / name for name in sorted(names)]
    files = sorted(folder.glob("*.safetensors"))
    return [path for path in files if not path.name.startswith("consolidated")] or files


def _header_bytes(path: Path) -> dict[str, int]:
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if not 0 < size <= _MAX_HEADER:
            raise ValueError(f"{path} is no safetensors file")
        header = json.loads(file.read(size))
    entries = ((name, entry) for name, entry in header.items() if name != "__metadata__")
    return {name: _tensor_bytes(entry) for name, entry in entries}


def _tensor_bytes(entry: Mapping[str, Any]) -> int:
    return int(prod(entry["shape"])) * _TENSOR_BITS[entry["dtype"]] // 8


def _text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    for key in ("text_config", "llm_config", "language_config", "thinker_config"):
        if inner := _mapping(config, key):
            return {**config, **_text_config(inner)}
    return config


def _mapping(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = config.get(key)
    return value if isinstance(value, Mapping) else {}


def _number(config: Mapping[str, Any], *keys: str) -> int | None:
    for key in keys:
        value = config.get(key)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return int(value)
    return None


def _has_small_kv(quantization: Mapping[str, Any]) -> bool:
    """Whether the checkpoint itself asks for an 8-bit KV cache, which "auto" then follows."""
    return bool(quantization.get("kv_cache_scheme") or quantization.get("kv_cache_quant_algo"))


def _kv_heads(text: Mapping[str, Any], heads: int) -> int:
    if text.get("multi_query") and not text.get("new_decoder_architecture"):
        return 1
    return _number(text, "num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num") or heads


def _window(text: Mapping[str, Any]) -> int | None:
    if text.get("use_sliding_window") is False:
        return None
    return _number(text, "sliding_window", "sliding_window_size")


# What config.json calls the layers, in ``layer_types`` or ``layers_block_type``.
_KIND_WORDS = {
    "full_attention": "full", "attention": "full", "full": "full", "hybrid": "full", "global": "full",
    "sliding_attention": "sliding", "sliding": "sliding", "chunked_attention": "sliding", "local": "sliding",
    "linear_attention": "state", "mamba": "state", "mamba2": "state", "conv": "state", "recurrent": "state",
    "moe": "none", "mlp": "none",
}  # fmt: skip
_PATTERN_LETTERS = {"M": "state", "*": "full"}


def _layer_kinds(text: Mapping[str, Any], layers: int) -> list[str]:
    listed = text.get("layer_types") or text.get("layers_block_type") or text.get("block_types")
    if text.get("kv_lora_rank"):
        return ["latent"] * layers
    if isinstance(listed, list) and listed:
        kinds = [_KIND_WORDS.get(str(word), "full") for word in listed]
        kinds = (kinds * layers)[:layers] if len(kinds) < layers else kinds[:layers]
    elif isinstance(pattern := text.get("hybrid_override_pattern"), str):
        kinds = [_PATTERN_LETTERS.get(letter, "none") for letter in pattern]
    else:
        kinds = _kinds_by_period(text, layers)
    if not _window(text):
        kinds = ["full" if kind == "sliding" else kind for kind in kinds]
    shared = _number(text, "num_kv_shared_layers") or 0
    return [*kinds[: len(kinds) - shared], *["none"] * shared]


def _kinds_by_period(text: Mapping[str, Any], layers: int) -> list[str]:
    if every := _number(text, "full_attention_interval"):
        return ["full" if (index + 1) % every == 0 else "state" for index in range(layers)]
    if every := _number(text, "attn_layer_period"):
        offset = _number(text, "attn_layer_offset") or 0
        return ["full" if index % every == offset else "state" for index in range(layers)]
    if every := _number(text, "sliding_window_pattern", "_sliding_window_pattern"):
        return ["full" if (index + 1) % every == 0 else "sliding" for index in range(layers)]
    if str(text.get("model_type", "")) in ("mamba", "mamba2", "falcon_mamba"):
        return ["state"] * layers
    if not _window(text):
        return ["full"] * layers
    # Before ``layer_types`` was written down, Qwen2 slid only in the layers from ``max_window_layers`` on.
    first = _number(text, "max_window_layers") or 0
    return ["full"] * min(first, layers) + ["sliding"] * max(0, layers - first)


def _active_intermediate(text: Mapping[str, Any], hidden: int) -> int:
    dense = _number(text, "intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size") or 4 * hidden
    expert = _number(text, "moe_intermediate_size", "expert_ffn_hidden_size")
    chosen = _number(text, "num_experts_per_tok", "num_experts_per_token", "moe_topk", "top_k_experts")
    if chosen is None:
        return dense
    shared = _number(text, "shared_expert_intermediate_size") or 0
    return max(dense if expert else 0, chosen * (expert or dense) + shared)


def _weights(
    text: Mapping[str, Any],
    layers: int,
    hidden: int,
    dtype_bytes: int,
    quantization: Mapping[str, Any],
    tensors: Mapping[str, int] | None,
) -> tuple[int, int, bool]:
    if tensors:
        shrinkable = (size for name, size in tensors.items() if not _UNQUANTIZED.search(name))
        return sum(tensors.values()), sum(shrinkable), True
    linear_count = layers * (_attention_weights(text, hidden) + _feed_forward_weights(text, hidden))
    tables = 1 if text.get("tie_word_embeddings") else 2
    table_bytes = tables * (_number(text, "vocab_size") or 0) * hidden * dtype_bytes
    linear = round(linear_count * _bytes_per_weight(quantization, dtype_bytes))
    return linear + table_bytes, linear, False


def _attention_weights(text: Mapping[str, Any], hidden: int) -> int:
    heads = _number(text, "num_attention_heads", "n_head", "num_heads", "n_heads") or 1
    size = _number(text, "head_dim") or hidden // heads
    if rank := _number(text, "kv_lora_rank"):
        rope = _number(text, "qk_rope_head_dim") or 0
        value = _number(text, "v_head_dim") or size
        nope = _number(text, "qk_nope_head_dim") or size
        low = _number(text, "q_lora_rank") or hidden
        query = (hidden * low if low != hidden else 0) + low * heads * (nope + rope)
        return query + hidden * (rank + rope) + rank * heads * (nope + value) + heads * value * hidden
    return 2 * hidden * heads * size + 2 * hidden * _kv_heads(text, heads) * size


def _feed_forward_weights(text: Mapping[str, Any], hidden: int) -> int:
    dense = _number(text, "intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size") or 4 * hidden
    experts = _number(text, "num_experts", "n_routed_experts", "num_local_experts")
    if not experts:
        return 3 * hidden * dense
    width = _number(text, "moe_intermediate_size", "expert_ffn_hidden_size") or dense
    shared = _number(text, "shared_expert_intermediate_size") or width * (_number(text, "n_shared_experts") or 0)
    return 3 * hidden * (experts * width + shared) + hidden * experts


def _bytes_per_weight(quantization: Mapping[str, Any], dtype_bytes: int) -> float:
    if not quantization:
        return float(dtype_bytes)
    bits = _number(quantization, "bits", "w_bit", "weight_bits") or next(_group_bits(quantization), None)
    method = str(quantization.get("quant_method"))
    if bits is None:
        bits = 4 if method in ("awq", "gptq", "mxfp4", "bitsandbytes", "modelopt_fp4", "nvfp4") else 8
    # Four-bit formats carry scales and zero points for every group of weights.
    return bits / 8 * (1.06 if bits < 8 else 1.0)


def _group_bits(quantization: Mapping[str, Any]) -> Iterator[int]:
    for group in _mapping(quantization, "config_groups").values():
        bits = _number(_mapping(group, "weights"), "num_bits") if isinstance(group, Mapping) else None
        if bits:
            yield bits
