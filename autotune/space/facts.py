"""What a space is cut to: the device and the installed vLLM, as small values that any room can make."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from autotune.space.config import FlagValue

GIB = 1024**3


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """One GPU, or the CPU with its memory. ``usable_cores`` are the host's cores that the engine may use."""

    kind: Literal["cuda", "cpu"]
    name: str
    total_bytes: int
    compute_capability: tuple[int, int] | None = None
    usable_cores: float | None = None

    @property
    def memory_gib(self) -> float:
        return self.total_bytes / GIB

    def __str__(self) -> str:
        capability = ".".join(map(str, self.compute_capability or ()))
        shown = f", compute capability {capability}" if capability else ""
        return f"{self.name!r} ({self.memory_gib:.0f} GiB{shown})"


@dataclass(frozen=True, slots=True)
class VllmFacts:
    """What the installed vLLM accepts.

    ``flags`` maps every flag (full name, no dashes) to the choices that it allows, or None where others may
    pass too. ``defaults`` holds the defaults that its source states. With ``known`` false the
    flags could not be read, and nothing is dropped on their account.
    """

    version: str
    flags: Mapping[str, tuple[str | int, ...] | None] = field(default_factory=dict)
    known: bool = True
    defaults: Mapping[str, FlagValue] = field(default_factory=dict)
