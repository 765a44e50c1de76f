"""Judging ``when`` conditions: every function answers with the reason why not, or None when all holds."""

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from autotune.space.facts import DeviceFacts
from autotune.space.model import ModelFacts

if TYPE_CHECKING:
    from autotune.space.schema import ModelCondition, When

_SIGNS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}
_BOUND = re.compile(r"\s*(>=|<=|==|>|<)\s*(\d+(?:\.\d+)?)\s*")


def parse_bounds(text: str) -> tuple[tuple[str, float], ...]:
    """Read ``">=24"`` or ``">=24,<80"``. Raises ``ValueError`` with the expected form."""
    matches = [_BOUND.fullmatch(part) for part in text.split(",")]
    found = tuple((match[1], float(match[2])) for match in matches if match)
    if len(found) < len(matches):
        raise ValueError('expected a comparison with a number, such as ">=24" or ">=24,<80"')
    return found


def why_not(when: "When", device: DeviceFacts, vllm_version: str, model: ModelFacts) -> str | None:
    """The first condition that does not hold here, in words; those on other parameters are not judged."""
    return next(_unmet(when, device, vllm_version, model), None)


def _unmet(when: "When", device: DeviceFacts, vllm_version: str, model: ModelFacts) -> Iterator[str]:
    if when.compute_capability is not None:
        yield from _capability(when.compute_capability, device)
    if when.vllm is not None and not _in_versions(when.vllm, vllm_version):
        yield f"needs vLLM {when.vllm}, this is {vllm_version}"
    if when.device_memory_gib is not None and not _within(when.device_memory_gib, device.memory_gib):
        yield f"needs device memory {when.device_memory_gib} GiB, this has {device.memory_gib:.0f}"
    if when.cores is not None and not _within(when.cores, device.usable_cores):
        yield f"needs CPU cores {when.cores}, usable here: {device.usable_cores or 'unknown'}"
    if when.model is not None:
        yield from _model(when.model, model)


def _capability(wanted: str, device: DeviceFacts) -> Iterator[str]:
    if device.compute_capability is None:
        yield f"needs compute capability {wanted}, {device.name} has none"
        return
    found = ".".join(map(str, device.compute_capability))
    if found not in SpecifierSet(wanted):
        yield f"needs compute capability {wanted}, {device.name} has {found}"


def _in_versions(wanted: str, version: str) -> bool:
    try:
        return SpecifierSet(wanted).contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False


def _within(bounds: str, number: float | None) -> bool:
    return number is not None and all(_SIGNS[sign](number, limit) for sign, limit in parse_bounds(bounds))


def _model(wanted: "ModelCondition", model: ModelFacts) -> Iterator[str]:
    for name in ("dtype", "quantization", "attention"):
        allowed, found = getattr(wanted, name), getattr(model, name)
        if allowed is not None and found not in allowed:
            yield f"needs a model with {name} {' or '.join(allowed)}, this has {found or 'none stated'}"
    for name in ("quantized", "moe", "hybrid", "sliding_window"):
        expected, found = getattr(wanted, name), bool(getattr(model, name))
        if expected is not None and found != expected:
            yield f"needs a model with {name} {str(expected).lower()}"
    if wanted.head_size is not None and not _head_size(wanted.head_size, model.head_size):
        yield f"needs head size {wanted.head_size}, the model has {model.head_size or 'none stated'}"


def _head_size(wanted: str | list[int], found: int | None) -> bool:
    return found in wanted if isinstance(wanted, list) else _within(wanted, found)
