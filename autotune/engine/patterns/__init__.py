"""The words by which a log gives a failure class away: data, specific before general.

Each row is (class, needle, pattern). The needle is a lower-case text that must occur (cheap); the
pattern, where given, must match as well (exact). Rows are tried in order on *evidence* only: the message
of an exception, a line logged as an error, a line of argparse, the compiler, NCCL or the C++ runtime.
Warnings and information never reach this table, so "not supported" in a warning is no failure.

The phrases are vLLM's own (0.6 to 0.33), PyTorch's, Hugging Face's and the operating system's.
``OOM`` is no class: an out-of-memory error is split by the boot phase, see ``engine/oom.py``.
"""

from autotune.engine.patterns._machine import MACHINE
from autotune.engine.patterns._memory import MEMORY
from autotune.engine.patterns._model import MODEL
from autotune.engine.patterns._pattern import OOM, Pattern, rows
from autotune.engine.patterns._settings import ARGUMENTS, DEVICE, GENERAL

__all__ = ["HINTS", "OOM", "PATTERNS", "Pattern"]

PATTERNS: tuple[Pattern, ...] = MEMORY + ARGUMENTS + MODEL + DEVICE + MACHINE + GENERAL
"""All rows, in the order in which they are tried."""

HINTS: tuple[Pattern, ...] = rows(
    "broken_install", ("failed to import from vllm._c", r"failed to import from vllm\._C.*undefined symbol")
)
"""Warnings that explain a failure which has no other cause in the log."""
