"""What may vary on one machine: launch configurations, parameters, and the shipped search spaces.

    choose_space(device) ──▶ SpaceFile ──cut_space(device, vLLM, model)──▶ SearchSpace

Names are loaded when they are first used: reading space files needs pydantic, values do not.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autotune.space.choose import choose_space
    from autotune.space.config import FlagValue, LaunchConfig
    from autotune.space.cut import cut_space
    from autotune.space.facts import DeviceFacts, VllmFacts
    from autotune.space.load import load_shipped, load_space
    from autotune.space.model import ModelFacts
    from autotune.space.parameters import Dropped, Parameter, SearchSpace

_HOMES = {
    "DeviceFacts": "facts",
    "Dropped": "parameters",
    "FlagValue": "config",
    "LaunchConfig": "config",
    "ModelFacts": "model",
    "Parameter": "parameters",
    "SearchSpace": "parameters",
    "VllmFacts": "facts",
    "choose_space": "choose",
    "cut_space": "cut",
    "load_shipped": "load",
    "load_space": "load",
}

__all__ = [
    "DeviceFacts",
    "Dropped",
    "FlagValue",
    "LaunchConfig",
    "ModelFacts",
    "Parameter",
    "SearchSpace",
    "VllmFacts",
    "choose_space",
    "cut_space",
    "load_shipped",
    "load_space",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
