"""Weight loading settings."""

from dataclasses import dataclass
from typing import Literal

SafetensorsLoadStrategy = Literal["lazy", "eager", "prefetch"]


@dataclass
class LoadConfig:
    """Where weights come from."""

    load_format: str = "auto"
    download_dir: str | None = None
    safetensors_load_strategy: SafetensorsLoadStrategy | None = None
