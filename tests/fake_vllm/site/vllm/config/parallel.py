"""Parallelism settings."""

from dataclasses import dataclass
from typing import Literal

DistributedExecutorBackend = Literal["ray", "mp", "uni", "external_launcher"]


@dataclass
class ParallelConfig:
    """How the model is spread over devices."""

    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    enable_expert_parallel: bool = False
    distributed_executor_backend: DistributedExecutorBackend | str | None = None
    disable_custom_all_reduce: bool = False
    enable_dbo: bool = False
