"""What a model said about texts, as arrays: one reading can be kept, and compared with another.

``Scores`` hold one row for each scored position: the token that stood there (or was chosen), its log probability, and
the likeliest tokens with theirs, best first. Unused places hold token -1 and log probability ``NOTHING``.
"""

import io
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

TOP = 20
NOTHING = -100.0

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """``tokens``, ``own`` and ``group`` have shape (n,), ``top`` and ``logprobs`` (n, TOP).

    ``group`` is the prompt that a row belongs to; rows of a group are in the order of the text.
    """

    tokens: Ints
    own: Floats
    top: Ints
    logprobs: Floats
    group: Ints

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True, slots=True)
class Prompts:
    """Token ids to ask about: ``passages`` are scored as they stand, ``openings`` are gone on with."""

    passages: tuple[tuple[int, ...], ...]
    openings: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """One pass over the prompts. ``seconds`` is what it took."""

    prompts: Prompts
    passages: Scores
    openings: Scores
    seconds: float

    def to_bytes(self) -> bytes:
        """Compressed, for the store."""
        arrays: dict[str, NDArray[np.generic]] = {"seconds": np.array(self.seconds)}
        for name in ("passages", "openings"):
            prompts: tuple[tuple[int, ...], ...] = getattr(self.prompts, name)
            arrays[f"{name}_lengths"] = np.array([len(p) for p in prompts], np.int32)
            arrays[f"{name}_prompts"] = np.array([t for p in prompts for t in p], np.int32)
            scores: Scores = getattr(self, name)
            arrays |= {f"{name}_{field}": getattr(scores, field) for field in Scores.__slots__}
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **arrays)
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Reading":
        """What ``to_bytes`` wrote. Raises ``ValueError`` or ``KeyError`` for anything else."""
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            arrays = dict(file)
        scores = {
            name: Scores(**{field: arrays[f"{name}_{field}"] for field in Scores.__slots__})
            for name in ("passages", "openings")
        }
        prompts = Prompts(_split(arrays, "passages"), _split(arrays, "openings"))
        return cls(prompts, scores["passages"], scores["openings"], float(arrays["seconds"]))


def _split(arrays: dict[str, NDArray[np.generic]], name: str) -> tuple[tuple[int, ...], ...]:
    ends = np.cumsum(arrays[f"{name}_lengths"])[:-1]
    return tuple(tuple(part.tolist()) for part in np.split(arrays[f"{name}_prompts"], ends))
