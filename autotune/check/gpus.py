"""Which device a launch is judged for: one of this machine, or one that is named."""

import json
import re
from pathlib import Path

from autotune.errors import UsageError
from autotune.host.detect import read_host
from autotune.host.select import class_hint, select_device
from autotune.space.facts import DeviceFacts

_FILE = Path(__file__).with_name("gpus.json")
_MIB = 1 << 20


def find_device(wanted: str | None) -> DeviceFacts | None:
    """The device for ``--gpu``: a known name such as ``rtx-4090``, or what ``autotune run --gpu`` takes.

    Without a wish it is this machine's GPU, and None where it has none: the launch may be meant for another
    machine. Raises ``UsageError`` for a name that is not known and for a GPU that is not here.
    """
    known = named_devices()
    if wanted is not None and (found := _by_name(known, wanted)):
        return found
    if wanted is not None and re.search("[a-z]", wanted, re.I) and not _is_local(wanted):
        raise UsageError(f"--gpu {wanted} is not known. Known are: cpu, {', '.join(known)}; or an index or UUID.")
    host = read_host()
    device = select_device(host, wanted or "auto")
    if wanted is None and device.kind == "cpu":
        return None
    return DeviceFacts(device.kind, device.name, device.total_bytes, device.compute_capability, host.cpu.usable_cores)


def named_devices() -> dict[str, DeviceFacts]:
    """The GPUs that can be named without being here."""
    rows = json.loads(_FILE.read_bytes())["gpus"]
    return {
        name: DeviceFacts("cuda", row["name"], row["mib"] * _MIB, tuple(row["compute_capability"]))
        for name, row in rows.items()
    }


def _by_name(known: dict[str, DeviceFacts], wanted: str) -> DeviceFacts | None:
    """By the name in the list, or by the full name that NVIDIA gives."""
    word = re.sub(r"[\s_]+", "-", wanted.strip().lower())
    hint = class_hint(wanted, 0)
    return known.get(word) or next(
        (known[name] for name in (f"{word}-80g", f"{word}-16g", hint) if name in known), None
    )


def _is_local(wanted: str) -> bool:
    """Whether a word means a device of this machine: ``auto``, ``cpu``, a UUID or the start of one."""
    return wanted in ("auto", "cpu") or re.match(r"(GPU|MIG)-", wanted) is not None
