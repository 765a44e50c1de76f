"""One launch with all that is known about it, and what rules find in it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from packaging.version import InvalidVersion, Version

from autotune.check.arguments import Arguments
from autotune.check.launch import Launch
from autotune.check.models import Model
from autotune.engine.flags import FlagTable
from autotune.engine.releases import Lifetime, Releases
from autotune.engine.vocabulary import Vocabulary
from autotune.space.config import LaunchConfig
from autotune.space.defaults import Defaults, find_defaults
from autotune.space.facts import DeviceFacts, VllmFacts

Level = Literal["error", "warning", "advice"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing to say about a launch.

    ``error``: it will not start, or not as written. ``warning``: it starts and does something else than it
    seems to. ``advice``: it works and could be better. ``what`` is one line, ``why`` its reason, ``instead``
    what to write, ``source`` where that is known from.
    """

    level: Level
    code: str
    what: str
    line: int
    why: str = ""
    instead: str = ""
    source: str = ""


@dataclass(frozen=True)
class Case:
    """A launch, and the vLLM, device and model that it is judged for; device and model may be unknown."""

    launch: Launch
    arguments: Arguments
    table: FlagTable
    vocabulary: Vocabulary
    releases: Releases
    device: DeviceFacts | None = None
    model: Model | None = None

    @property
    def vllm(self) -> str:
        """``vLLM 0.32.0``, for sentences."""
        return f"vLLM {self.table.version}"

    @cached_property
    def version(self) -> Version:
        """For comparisons; what cannot be read counts as newer than all."""
        try:
            return Version(Version(self.table.version).base_version)
        except InvalidVersion:
            return Version("9999")

    @cached_property
    def config(self) -> LaunchConfig:
        """The known settings."""
        return self.arguments.config(self.launch)

    @cached_property
    def defaults(self) -> Defaults:
        """What this vLLM uses on this device where nothing is set."""
        if self.device is None:
            return Defaults()
        length = self.model.facts.max_position_embeddings if self.model else None
        return find_defaults(self.device, VllmFacts(self.table.version), length)

    @property
    def capability(self) -> tuple[int, int] | None:
        """The GPU's compute capability, None for a CPU and where it is not known."""
        return self.device.compute_capability if self.device else None

    def line_of(self, *names: str) -> int:
        """The line of the first of these flags that is set, else of the launch."""
        found = (setting for name in names if (setting := self.arguments.get(name)))
        return next((setting.line for setting in found), self.launch.line)


Rule = Callable[[Case], Iterator[Finding]]


def history(life: Lifetime | None) -> str:
    """When something came, or when it went."""
    if life is None:
        return "no version since 0.6.3 had it"
    return life.went if life.after else f"it {life.came}"


WHEELS = "vLLM's published wheels"
