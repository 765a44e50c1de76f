"""The device and the installed vLLM as the space room sees them; both rooms stay strangers to each other."""

from autotune.engine.flag_reader import Flag
from autotune.engine.flags import FlagTable
from autotune.engine.install import VllmInstall
from autotune.host.types import Device, Host
from autotune.space.facts import DeviceFacts, VllmFacts


def device_facts(device: Device, host: Host) -> DeviceFacts:
    """The device as the space room sees it."""
    return DeviceFacts(
        kind=device.kind,
        name=device.name,
        total_bytes=device.total_bytes,
        compute_capability=device.compute_capability,
        usable_cores=host.cpu.usable_cores,
    )


def vllm_facts(install: VllmInstall, table: FlagTable) -> VllmFacts:
    """The installed vLLM as the space room sees it."""
    return VllmFacts(
        version=install.version,
        flags={flag.name: _choices(flag) for flag in table.flags},
        known=bool(table.flags),
        defaults={
            flag.name: flag.default
            for flag in table.flags
            if flag.default_known and isinstance(flag.default, bool | int | float | str)
        },
    )


def _choices(flag: Flag) -> tuple[str, ...] | None:
    if flag.choices is None or flag.open_choices:
        return None
    return tuple(str(choice) for choice in flag.choices)
