"""Finds the space for a device.

A shipped space fits when a word of its ``match.names`` stands in the device's name and the memory lies in
its range. Where none fits, the nearest is taken and said aloud: same name with other memory, else same
compute capability, else same generation (major number), each time the one with the nearest memory. A
device of a generation that no space knows gets ``default``.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from autotune.errors import UsageError
from autotune.space.facts import DeviceFacts
from autotune.space.files import space_files
from autotune.space.load import load_shipped, load_space
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
    files = [load_shipped(name) for name in space_files()]
    if device.kind == "cpu":
        return _by_name(files, "cpu"), "cpu: the device is the CPU"
    spaces = [(file, file.match) for file in files if file.match and file.match.kind == device.kind]
    fitting = [(f, m) for f, m in spaces if _names(m, device) and _memory(m, device)]
    if fitting:
        best, _ = _closest(fitting, device)
        return best, f"{best.name}: the device is {device}"
    return _nearest(spaces, device) or (
        _by_name(files, "default"),
        f"default: no space for {device}, and none of its generation",
    )


def _nearest(spaces: list[tuple[SpaceFile, Match]], device: DeviceFacts) -> tuple[SpaceFile, str] | None:
    capability = device.compute_capability
    tests = [
        ("same name", [(f, m) for f, m in spaces if _names(m, device)]),
        ("same compute capability", [(f, m) for f, m in spaces if capability and m.capability == capability]),
        (
            "same generation",
            [(f, m) for f, m in spaces if capability and m.capability and m.capability[0] == capability[0]],
        ),
    ]
    for reason, group in tests:
        if group:
            file, match = _closest(group, device)
            shown = reason + (f" {match.compute_capability}" if reason.endswith("capability") else "")
            return file, (
                f"no space for {device.name!r} - nearest is {file.name}: {shown}, "
                f"{device.memory_gib:.0f} GiB here, {_range(match)} there"
            )
    return None


def _names(match: Match, device: DeviceFacts) -> bool:
    words = (re.escape(name).replace(r"\ ", r"[\s-]+") for name in match.names)
    return any(re.search(rf"(?<![a-z0-9]){word}(?![a-z0-9])", device.name, re.I) for word in words)


def _memory(match: Match, device: DeviceFacts) -> bool:
    return match.memory_gib is None or match.memory_gib[0] <= device.memory_gib <= match.memory_gib[1]


def _closest(group: Iterable[tuple[SpaceFile, Match]], device: DeviceFacts) -> tuple[SpaceFile, Match]:
    return min(group, key=lambda pair: (_distance(pair[1], device), pair[0].name))


def _distance(match: Match, device: DeviceFacts) -> float:
    low, high = match.memory_gib or (0.0, 0.0)
    return abs(device.memory_gib - (low + high) / 2)


def _range(match: Match) -> str:
    return "{:g} to {:g}".format(*match.memory_gib) if match.memory_gib else "any memory"


def _by_name(files: list[SpaceFile], name: str) -> SpaceFile:
    found = next((file for file in files if file.name == name), None)
    if found is None:
        raise UsageError(f"the shipped search space {name!r} is missing; install autotune again")
    return found
