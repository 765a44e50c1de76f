"""Finds the space for a device.

A shipped space fits when a word of its ``match.names`` stands in the device's name and the memory lies in
its range. Where none fits, the nearest is taken and said aloud: same name with other memory, else same
compute capability, else same generation (major number), each time the one with the nearest memory. A
device of a generation that no space knows gets ``default``.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from autotune.errors import UsageError
from autotune.space.facts import DeviceFacts
from autotune.space.files import space_files
from autotune.space.load import load_shipped, load_space, read_match
from autotune.space.problems import suggestion
from autotune.space.schema import Match, SpaceFile


def choose_space(device: DeviceFacts, name: str = "auto") -> tuple[SpaceFile, str]:
    """The space for a device, and in one line why it was chosen.

    ``name`` is ``auto``, a shipped space's name or a file. Raises ``UsageError``.
    """
    if name == "auto":
        return _automatic(device)
    if name in space_files():
        return load_shipped(name), f"{name}: asked for by name"
    path = Path(name).expanduser()
    if not path.is_file():
        _refuse(name, path)
    base, _ = _automatic(device)
    return load_space(path, base), f"{name}: asked for by file"


def _refuse(name: str, path: Path) -> None:
    if path.is_dir():
        raise UsageError(f"the search space {name!r} is a folder; give a YAML file")
    if "/" in name or path.suffix in (".yaml", ".yml"):
        raise UsageError(f"the space file {name!r} does not exist")
    raise UsageError(f"no search space {name!r}{suggestion(name, ['auto', *space_files()])}")


def _automatic(device: DeviceFacts) -> tuple[SpaceFile, str]:
    if device.kind == "cpu":
        return load_shipped("cpu"), "cpu: the device is the CPU"
    matches = {name: read_match(path) for name, path in space_files().items()}
    spaces = {name: match for name, match in matches.items() if match and match.kind == device.kind}
    fitting = {n: m for n, m in spaces.items() if _names(m, device) and _memory(m, device)}
    if fitting:
        name = _closest(fitting, device)
        return load_shipped(name), f"{name}: the device is {device}"
    name, because = _nearest(spaces, device)
    return load_shipped(name), because


def _nearest(spaces: Mapping[str, Match], device: DeviceFacts) -> tuple[str, str]:
    here = device.compute_capability
    tests: list[tuple[str, Callable[[Match], bool]]] = [
        ("same name", lambda match: _names(match, device)),
        ("same compute capability", lambda match: match.capability == here),
        ("same generation", lambda match: bool(here and match.capability and match.capability[0] == here[0])),
    ]
    for reason, passes in tests:
        group = {name: match for name, match in spaces.items() if passes(match)}
        if group and (here or reason == "same name"):
            name = _closest(group, device)
            capability = f" {group[name].compute_capability}" if reason.endswith("capability") else ""
            return name, (
                f"no space for {device.name!r} - nearest is {name}: {reason}{capability}, "
                f"{device.memory_gib:.0f} GiB here, {_range(group[name])} there"
            )
    return "default", f"default: no space for {device}, and none of its generation"


def _names(match: Match, device: DeviceFacts) -> bool:
    words = (re.escape(name).replace(r"\ ", r"[\s-]+") for name in match.names)
    return any(re.search(rf"(?<![a-z0-9]){word}(?![a-z0-9])", device.name, re.I) for word in words)


def _memory(match: Match, device: DeviceFacts) -> bool:
    return match.memory_gib is None or match.memory_gib[0] <= device.memory_gib <= match.memory_gib[1]


def _closest(group: Mapping[str, Match], device: DeviceFacts) -> str:
    return min(group, key=lambda name: (_distance(group[name], device), name))


def _distance(match: Match, device: DeviceFacts) -> float:
    low, high = match.memory_gib or (0.0, 0.0)
    return abs(device.memory_gib - (low + high) / 2)


def _range(match: Match) -> str:
    return "{:g} to {:g}".format(*match.memory_gib) if match.memory_gib else "any memory"
