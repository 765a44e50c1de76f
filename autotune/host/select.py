"""Which device is tuned: what the person asked for, or the GPU that is most free."""

import os
import re
from collections.abc import Mapping

from autotune.errors import UsageError
from autotune.host.types import GIB, Device, Gpu, Host

_NOISE = re.compile(r"\b(nvidia|geforce|tesla|quadro|graphics|generation|laptop|gpu)\b", re.I)
_MODEL = re.compile(
    r"\b(rtx(?: pro)?(?: [a-z]?\d+[a-z]?)(?: (?:ti|super|ada|blackwell))*|[a-z]{1,3}\d+[a-z]{0,2})\b", re.I
)


def select_device(host: Host, wanted: str = "auto", environ: Mapping[str, str] | None = None) -> Device:
    """The device that ``wanted`` names: ``auto``, ``cpu``, a GPU's index or its UUID (or the start of one).

    ``auto`` prefers a GPU on which nothing computes, then the one with most free memory, among those that
    CUDA_VISIBLE_DEVICES (in ``environ``) lets through; without any GPU it is the CPU. Raises ``UsageError``
    where the device does not exist or cannot be used; the message says what exists.
    """
    if wanted == "cpu":
        return _cpu(host, "asked for")
    if wanted == "auto":
        return _automatic(host, (os.environ if environ is None else environ).get("CUDA_VISIBLE_DEVICES"))
    matches = [gpu for gpu in host.gpus if _named(gpu, wanted)]
    if not matches:
        raise UsageError(f"--gpu {wanted}: there is no such GPU here. {_what_exists(host)}")
    if len(matches) > 1:
        uuids = ", ".join(gpu.uuid for gpu in matches)
        raise UsageError(f"--gpu {wanted} means more than one device: name one by its UUID ({uuids}).")
    if matches[0].problem:
        raise UsageError(f"--gpu {wanted} cannot be used: {matches[0].problem}.")
    return _cuda(matches[0], "asked for")


def class_hint(name: str, total_bytes: int) -> str:
    """A short spelling of a GPU's model: ``h100``, ``a100-80g``, ``rtx-4090``. Empty where none is seen.

    The memory is named for the A100 alone, whose two sizes differ in speed as well.
    """
    found = _MODEL.search(_NOISE.sub("", name))
    if not found:
        return ""
    model = "-".join(found.group().lower().split())
    return f"{model}-{80 if total_bytes > 60 * GIB else 40}g" if model == "a100" else model


def _automatic(host: Host, visible: str | None) -> Device:
    usable = [gpu for gpu in host.gpus if gpu.problem is None]
    seen = [gpu for gpu in usable if _visible(gpu, visible)]
    if not seen:
        hidden = f"CUDA_VISIBLE_DEVICES={visible} hides every GPU" if usable else host.gpu_problem
        return _cpu(host, hidden or "no GPU found")
    best = min(seen, key=lambda gpu: (len(gpu.compute_processes) > 0, -gpu.free_bytes, gpu.index))
    busy = len(best.compute_processes)
    if len(seen) == 1:
        why = "the only GPU" if len(usable) == 1 else "the only GPU that CUDA_VISIBLE_DEVICES shows"
    else:
        why = f"most free memory of {len(seen)} GPUs" if busy else f"idle, most free memory of {len(seen)} GPUs"
    note = f"; {busy} other process{'es' * (busy > 1)} computing on it will disturb measurements" if busy else ""
    return _cuda(best, why + note)


def _named(gpu: Gpu, wanted: str) -> bool:
    if wanted.isdigit():
        return gpu.index == int(wanted)
    return bool(gpu.uuid) and len(wanted) >= 6 and gpu.uuid.lower().startswith(wanted.lower())


def _visible(gpu: Gpu, visible: str | None) -> bool:
    if visible is None:
        return True
    return any(_named(gpu, word.strip()) for word in visible.split(",") if word.strip())


def _what_exists(host: Host) -> str:
    if not host.gpus:
        return f"Reason: {host.gpu_problem or 'no GPU found'}. Use --gpu cpu to tune the CPU."
    listed = ", ".join(f"{gpu.index} ({gpu.name}, {gpu.uuid})" for gpu in host.gpus)
    return f"There is: {listed}; or cpu."


def _cuda(gpu: Gpu, why: str) -> Device:
    hint = class_hint(gpu.name, gpu.total_bytes)
    return Device("cuda", gpu.name, gpu.total_bytes, gpu.compute_capability, hint, gpu, why)


def _cpu(host: Host, why: str) -> Device:
    return Device("cpu", host.cpu.model, host.ram_total_bytes, class_hint="cpu", why=why)
