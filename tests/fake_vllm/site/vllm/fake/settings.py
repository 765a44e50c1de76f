"""The resolved settings of one engine, from flags, model folder and behaviour; both processes share the value."""

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm.config.model import NEED_CHECKPOINT, QUANTIZATION_METHODS
from vllm.config.scheduler import problem
from vllm.engine.arg_utils import make_arg_parser
from vllm.fake.behaviour import Behaviour, load

HALF_SIZE = ("fp8", "fp8_e4m3", "fp8_e5m2", "int8_per_token_head", "fp8_per_token_head")
DEFAULT_MODEL = {
    "architectures": ["Qwen3ForCausalLM"],
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 4096,
    "max_position_embeddings": 4096,
}


class ConfigError(Exception):
    """The flags are refused; ``config`` names the configuration class that does."""

    def __init__(self, config: str, message: str) -> None:
        super().__init__(message)
        self.config = config


@dataclass(frozen=True)
class Settings:
    """What one engine runs with."""

    flags: Mapping[str, Any]
    behaviour: Behaviour
    model: str
    served_names: tuple[str, ...]
    architecture: str
    vocab: int
    model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int
    kv_bytes: int
    kv_tokens: int
    token_bytes: int

    @property
    def served_name(self) -> str:
        """The name that answers carry."""
        return self.served_names[0]

    @property
    def peak_bytes(self) -> int:
        """Activations of the largest step."""
        memory = self.behaviour.memory
        return memory.per_batched_token_bytes * self.max_num_batched_tokens + memory.per_seq_bytes * self.max_num_seqs


def flags_of(args: argparse.Namespace) -> dict[str, Any]:
    """Flags by their full name without dashes, as parsed."""
    return {name.replace("_", "-"): value for name, value in vars(args).items()}


def resolve(args: argparse.Namespace, environ: Mapping[str, str]) -> Settings:
    """Apply defaults and vLLM's rules. Raises ``ConfigError`` where vLLM would refuse the flags."""
    flags = flags_of(args)
    flags["model"] = args.model = getattr(args, "model_tag", None) or args.model
    config = _model_config(args.model)
    limit = int(config["max_position_embeddings"])
    model_len = args.max_model_len if args.max_model_len not in (None, -1) else limit
    if model_len > limit and not environ.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN"):
        raise ConfigError(
            "ModelConfig",
            f"User-specified max_model_len ({model_len}) is greater than the derived max_model_len "
            f"(max_position_embeddings={float(limit)} or model_max_length=None in model's config.json).",
        )
    _check_quantization(args.quantization)
    seqs = args.max_num_seqs if args.max_num_seqs is not None else 128
    batched = args.max_num_batched_tokens if args.max_num_batched_tokens is not None else 2048
    if args.max_num_batched_tokens is None:
        batched = max(batched, seqs) if args.enable_chunked_prefill else max(batched, model_len)
    elif args.max_num_seqs is None:
        seqs = min(seqs, batched)
    if message := problem(batched, seqs, model_len, args.enable_chunked_prefill):
        raise ConfigError("SchedulerConfig", message)
    flags |= {"max-num-seqs": seqs, "max-num-batched-tokens": batched, "max-model-len": model_len}
    behaviour = load(flags, environ)
    usual = flags_of(make_arg_parser(serve_command=False).parse_args([]))
    flags |= {name: usual[name] for name in behaviour.ignored_flags}
    return _sized(flags, behaviour, config, model_len, seqs, batched)


def _model_config(model: str) -> dict[str, Any]:
    file = Path(model) / "config.json"
    if model.startswith("/") and not Path(model).exists():
        raise FileNotFoundError(model)
    return DEFAULT_MODEL | (json.loads(file.read_text()) if file.exists() else {})


def _check_quantization(method: str | None) -> None:
    if method is None:
        return
    if method not in QUANTIZATION_METHODS:
        known = list(QUANTIZATION_METHODS)
        raise ConfigError("ModelConfig", f"Unknown quantization method: {method}. Must be one of {known}.")
    if method in NEED_CHECKPOINT:
        raise ConfigError("VllmConfig", f"Cannot find the config file for {method.split('_')[0]}")


def _sized(
    flags: dict[str, Any], behaviour: Behaviour, config: dict[str, Any], model_len: int, seqs: int, batched: int
) -> Settings:
    memory = behaviour.memory
    width = 4 if flags["dtype"] in ("float", "float32") else 2
    dtype = flags["kv-cache-dtype"]
    width = 1 if dtype in HALF_SIZE else width
    heads, head_dim = config["num_key_value_heads"], config["head_dim"]
    token_bytes = memory.per_token_bytes or int(2 * config["num_hidden_layers"] * heads * head_dim * width)
    kv_bytes = flags["kv-cache-memory-bytes"]
    if kv_bytes is None:
        graphs = 0 if flags["enforce-eager"] else memory.graphs_bytes
        taken = memory.weights_bytes + memory.per_batched_token_bytes * batched + memory.per_seq_bytes * seqs + graphs
        kv_bytes = int(memory.total_bytes * flags["gpu-memory-utilization"]) - taken
    block = flags["block-size"] or 16
    blocks = flags["num-gpu-blocks-override"] or max(0, kv_bytes) // (token_bytes * block)
    names = tuple(flags["served-model-name"] or [flags["model"]])
    return Settings(
        flags=flags,
        behaviour=behaviour,
        model=flags["model"],
        served_names=names,
        architecture=config["architectures"][0],
        vocab=int(config["vocab_size"]),
        model_len=model_len,
        max_num_seqs=seqs,
        max_num_batched_tokens=batched,
        block_size=block,
        kv_bytes=kv_bytes,
        kv_tokens=blocks * block,
        token_bytes=token_bytes,
    )
