"""The flags of ``--vllm-arg``: given to every engine, and therefore not searched."""

import re
from collections.abc import Iterable

from autotune.errors import UsageError
from autotune.space.config import FlagValue, LaunchConfig

OWN = ("host", "port", "served-model-name", "model", "config", "api-key", "uds")

_ARGUMENT = re.compile(r"--(?P<name>[A-Za-z][\w-]*)(?:[=\s]\s*(?P<value>.+))?", re.DOTALL)


def parse_fixed(arguments: Iterable[str]) -> LaunchConfig:
    """A launch config from one flag per argument: ``--dtype=half``, ``--max-model-len 4096``, ``--no-x``.

    Raises ``UsageError`` for what is no flag and for flags that the tuner sets itself.
    """
    return LaunchConfig.of(dict(_flag(argument.strip()) for argument in arguments))


def flag_value(text: str) -> FlagValue:
    """An integer where the text is one, a float where it is one, else the text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _flag(argument: str) -> tuple[str, FlagValue]:
    match = _ARGUMENT.fullmatch(argument)
    if match is None:
        raise UsageError(f"--vllm-arg {argument!r} is no flag. Write one flag each, like --vllm-arg=--dtype=half.")
    name = match["name"].replace("_", "-")
    if name in OWN:
        raise UsageError(f"--vllm-arg --{name} is set by autotune itself. Leave it out.")
    if match["value"] is not None:
        return name, flag_value(match["value"])
    return (name.removeprefix("no-"), False) if name.startswith("no-") else (name, True)
