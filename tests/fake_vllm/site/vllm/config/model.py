"""Model settings."""

from dataclasses import dataclass
from typing import Literal

ModelDType = Literal["auto", "half", "float16", "bfloat16", "float", "float32"]
TokenizerMode = Literal["auto", "hf", "slow", "mistral"]
QUANTIZATION_METHODS = (
    "awq",
    "auto_awq",
    "fp8",
    "auto_gptq",
    "gptq",
    "gptq_marlin",
    "awq_marlin",
    "compressed-tensors",
    "experts_int8",
    "fp8_per_tensor",
    "fp8_per_block",
    "fp8_per_channel",
    "int8_per_channel_weight_only",
    "mxfp8",
)
NEED_CHECKPOINT = ("awq", "auto_awq", "auto_gptq", "gptq", "gptq_marlin", "awq_marlin", "compressed-tensors")


@dataclass
class ModelConfig:
    """What is served, and in which precision."""

    model: str = "Qwen/Qwen3-0.6B"
    tokenizer: str | None = None
    tokenizer_mode: TokenizerMode = "auto"
    trust_remote_code: bool = False
    dtype: ModelDType | str = "auto"
    seed: int = 0
    revision: str | None = None
    max_model_len: int | None = None
    quantization: str | None = None
    enforce_eager: bool = False
    max_logprobs: int = 20
    served_model_name: list[str] | None = None
    generation_config: str = "auto"
    hf_overrides: dict[str, object] | None = None
    enable_sleep_mode: bool = False
