"""Configuration classes, one module per concern as in vLLM: their fields become command-line flags."""

from vllm.config.cache import CacheConfig
from vllm.config.compilation import CompilationConfig
from vllm.config.load import LoadConfig
from vllm.config.model import ModelConfig
from vllm.config.parallel import ParallelConfig
from vllm.config.scheduler import SchedulerConfig

__all__ = ["CacheConfig", "CompilationConfig", "LoadConfig", "ModelConfig", "ParallelConfig", "SchedulerConfig"]
