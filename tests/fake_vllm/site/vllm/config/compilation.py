"""Compilation and CUDA graph settings."""

from dataclasses import dataclass


@dataclass
class CompilationConfig:
    """How the model's graph is compiled and captured."""

    cudagraph_capture_sizes: list[int] | None = None
    max_cudagraph_capture_size: int | None = None
