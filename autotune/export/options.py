"""What a person may choose when a recommendation is exported."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """``image`` replaces the published container image; ``vllm`` is the command that starts vLLM on this host."""

    image: str | None = None
    vllm: str = "vllm"


DEFAULT_OPTIONS = ExportOptions()
