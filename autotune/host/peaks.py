"""What GPUs can do at most, by the class hint of a device: the vendors' dense figures.

Only a prior for ordering candidates rests on them; what a GPU achieves is fitted from measured points.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Peaks:
    """Memory bandwidth in bytes/s, and dense matrix rates in FLOP/s at 16 and at 8 bits.

    ``flops_8bit`` equals ``flops_16bit`` where the GPU has no faster 8-bit float units.
    """

    bandwidth_bytes_s: float
    flops_16bit: float
    flops_8bit: float


def _peaks(gb_s: float, tflops_16bit: float, tflops_8bit: float) -> Peaks:
    return Peaks(gb_s * 1e9, tflops_16bit * 1e12, tflops_8bit * 1e12)


PEAKS: Mapping[str, Peaks] = MappingProxyType(
    {
        "b200": _peaks(8000, 2250, 4500),
        "h200": _peaks(4800, 989, 1979),
        "h100": _peaks(3350, 989, 1979),
        "a100-80g": _peaks(2039, 312, 312),
        "a100-40g": _peaks(1555, 312, 312),
        "l40s": _peaks(864, 362, 733),
        "l4": _peaks(300, 121, 242),
        "a10g": _peaks(600, 70, 70),
        "rtx-4090": _peaks(1008, 165, 330),
        "rtx-3090": _peaks(936, 71, 71),
        "t4": _peaks(320, 65, 65),
    }
)
