"""A tiny Qwen3-shaped model, made on the spot, so that a first run needs no download.

vLLM serves the folder as it serves any other: configuration, tokenizer, chat template and bf16 safetensors
are all there. The weights are random (about 2 million, seeded), so the text is noise; speed, memory,
scheduling and failures are those of a real engine, which is all that tuning needs. It says nothing about
quality.

Everything is written as plain JSON and bytes: this process imports no torch, transformers, tokenizers or
safetensors. The tokenizer is a byte-level BPE whose merges are spelt out here (syllables, with and without a
leading space), so that any text round-trips and every token id decodes to something.

The folder appears by one rename and carries a stamp with the size of each file: a half-written or damaged
folder is never taken for a good one, and a good one is never written again.
"""

from __future__ import annotations

import json
import os
import struct
import tempfile
from collections.abc import Iterator, Mapping
from itertools import chain, islice, product
from pathlib import Path
from typing import Any

from autotune.errors import EnvironmentFault, UsageError

DEMO_MODEL_NAME = "demo-qwen3-v1"

_STAMP = "autotune-demo.json"
_SEED = 20260101
_VOCAB = 4096
_HIDDEN, _INTERMEDIATE, _LAYERS = 256, 512, 2
_HEADS, _KV_HEADS, _HEAD_DIM = 4, 2, 64
_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_CONSONANTS, _VOWELS = "bcdfghjklmnpqrstvwxyz", "aeiou"
_CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def default_demo_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the model is kept between runs: ``$XDG_CACHE_HOME`` or ``~/.cache``, then ``vllm-autotune/models``."""
    cache = environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(cache).absolute() / "vllm-autotune" / "models" / DEMO_MODEL_NAME


def write_demo_model(folder: Path) -> Path:
    """Make sure that ``folder`` holds the complete demonstration model; return its absolute path.

    Nothing is written when it is already there. A folder with other content is left alone (UsageError);
    a disk that cannot be written is an EnvironmentFault.
    """
    folder = folder.absolute()
    if _is_complete(folder):
        return folder
    if folder.exists() and not _is_ours_or_empty(folder):
        raise UsageError(f"{folder} holds something else than the demonstration model.\nName an empty or new folder.")
    try:
        _replace(folder)
    except OSError as error:
        raise EnvironmentFault(f"Cannot write the demonstration model to {folder}: {error.strerror}.") from error
    return folder


def _is_complete(folder: Path) -> bool:
    try:
        stamp = json.loads((folder / _STAMP).read_text())
        return stamp["model"] == DEMO_MODEL_NAME and all(
            (folder / name).stat().st_size == size for name, size in stamp["bytes"].items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _is_ours_or_empty(folder: Path) -> bool:
    return folder.is_dir() and ((folder / _STAMP).exists() or not any(folder.iterdir()))


def _replace(folder: Path) -> None:
    """Write beside ``folder``, move what was there out of the way, move the new one in."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".demo-", dir=folder.parent) as scratch:
        fresh = Path(scratch, "fresh")
        fresh.mkdir()
        _write_files(fresh)
        if folder.exists():
            folder.rename(Path(scratch, "old"))
        try:
            fresh.rename(folder)
        except OSError:
            # Another run may have finished the same work in the meantime; its folder is as good as ours.
            if not _is_complete(folder):
                raise


def _write_files(folder: Path) -> None:
    for name, content in _json_files().items():
        (folder / name).write_text(json.dumps(content, ensure_ascii=False) + "\n", encoding="utf-8")
    _write_safetensors(folder / "model.safetensors")
    sizes = {file.name: file.stat().st_size for file in sorted(folder.iterdir())}
    (folder / _STAMP).write_text(json.dumps({"model": DEMO_MODEL_NAME, "bytes": sizes}) + "\n")


def _json_files() -> dict[str, dict[str, Any]]:
    return {
        "config.json": _model_config(),
        "generation_config.json": {"bos_token_id": 0, "eos_token_id": 0},
        "tokenizer.json": _tokenizer(),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": _SPECIAL[0],
            "pad_token": _SPECIAL[0],
            "model_max_length": 4096,
            "clean_up_tokenization_spaces": False,
            "chat_template": _CHAT_TEMPLATE,
        },
    }


def _model_config() -> dict[str, Any]:
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "dtype": "bfloat16",
        "vocab_size": _VOCAB,
        "hidden_size": _HIDDEN,
        "intermediate_size": _INTERMEDIATE,
        "num_hidden_layers": _LAYERS,
        "num_attention_heads": _HEADS,
        "num_key_value_heads": _KV_HEADS,
        "head_dim": _HEAD_DIM,
        "max_position_embeddings": 4096,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "attention_bias": False,
        "tie_word_embeddings": True,
        "use_sliding_window": False,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }


def _tokenizer() -> dict[str, Any]:
    """Byte-level BPE in the file format of Hugging Face's ``tokenizers``, exactly ``_VOCAB`` entries."""
    alphabet = sorted(_byte_letters())
    merges = list(islice(_merges(), _VOCAB - len(_SPECIAL) - len(alphabet)))
    entries = [*_SPECIAL, *alphabet, *(left + right for left, right in merges)]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": token, **flags} for i, token in enumerate(_SPECIAL)],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {entry: i for i, entry in enumerate(entries)},
            "merges": [list(pair) for pair in merges],
        },
    }


def _byte_letters() -> list[str]:
    """The printable character that byte-level BPE writes for each byte: itself, or 256, 257, … in order."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    stand_ins = iter(range(256, 512))
    return [chr(byte if byte in printable else next(stand_ins)) for byte in range(256)]


def _merges() -> Iterator[tuple[str, str]]:
    """Pairs to join, strongest first: syllables, letter pairs, closed syllables, then those after a space."""
    letters = sorted(_CONSONANTS + _VOWELS)
    space = _byte_letters()[ord(" ")]
    syllables = list(product(_CONSONANTS, _VOWELS))
    pairs = [pair for pair in product(letters, letters) if pair not in set(syllables)]
    closed = [(a + b, c) for (a, b), c in product(syllables, _CONSONANTS)]
    after_space = [a + b for a, b in chain(syllables, pairs, closed)]
    return chain(syllables, pairs, closed, product([space], chain(letters, after_space)))


def _tensor_shapes() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (_VOCAB, _HIDDEN)}
    for layer in range(_LAYERS):
        prefix = f"model.layers.{layer}"
        shapes |= {
            f"{prefix}.input_layernorm.weight": (_HIDDEN,),
            f"{prefix}.self_attn.q_proj.weight": (_HEADS * _HEAD_DIM, _HIDDEN),
            f"{prefix}.self_attn.k_proj.weight": (_KV_HEADS * _HEAD_DIM, _HIDDEN),
            f"{prefix}.self_attn.v_proj.weight": (_KV_HEADS * _HEAD_DIM, _HIDDEN),
            f"{prefix}.self_attn.o_proj.weight": (_HIDDEN, _HEADS * _HEAD_DIM),
            f"{prefix}.self_attn.q_norm.weight": (_HEAD_DIM,),
            f"{prefix}.self_attn.k_norm.weight": (_HEAD_DIM,),
            f"{prefix}.post_attention_layernorm.weight": (_HIDDEN,),
            f"{prefix}.mlp.gate_proj.weight": (_INTERMEDIATE, _HIDDEN),
            f"{prefix}.mlp.up_proj.weight": (_INTERMEDIATE, _HIDDEN),
            f"{prefix}.mlp.down_proj.weight": (_HIDDEN, _INTERMEDIATE),
        }
    return shapes | {"model.norm.weight": (_HIDDEN,)}


def _write_safetensors(path: Path) -> None:
    """Header length (8 bytes, little-endian), JSON header, then the tensors end to end."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in _tensor_shapes().items():
        count = shape[0] * (shape[1] if len(shape) == 2 else 1)
        start, end = end, end + 2 * count
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.writelines(_tensor_bytes())


def _tensor_bytes() -> Iterator[bytes]:
    import numpy as np

    random = np.random.default_rng(_SEED)
    for name, shape in _tensor_shapes().items():
        if len(shape) == 1:
            values = np.ones(shape, np.float32)
        else:
            values = random.standard_normal(shape, np.float32) / np.float32(shape[1] ** 0.5)
        if name == "model.embed_tokens.weight":
            # The output layer is tied to this one: a zero row has a middling logit for ever, so greedy
            # decoding never ends an answer early.
            values[: len(_SPECIAL)] = 0
        # bfloat16 is the upper half of a float32; adding half a unit (ties to even) rounds it.
        bits = values.view(np.uint32)
        yield ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()
