"""Why an engine failed: one value that the tuner, the store and ``autotune explain`` share.

A failure belongs to a class (``failure_classes.py``), carries the log line that proves it, the boot
phase it struck in, and, where vLLM prints numbers, by how much the configuration missed. The class
decides what follows: a failure that the configuration caused teaches the sampler; one that the machine
caused never does.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from autotune.engine.failure_classes import CLASSES, Consequence, FailureClass
from autotune.engine.logs import BootPhase


@dataclass(frozen=True, slots=True)
class MarginBytes:
    """Memory that was needed and memory that was there, in bytes; ``available`` may be negative."""

    needed: int
    available: int

    @property
    def shortfall(self) -> int:
        """Bytes that were missing (> 0), or to spare (< 0)."""
        return self.needed - self.available


@dataclass(frozen=True, slots=True)
class MarginTokens:
    """Tokens that were needed and tokens that there was room for."""

    needed: int
    available: int

    @property
    def shortfall(self) -> int:
        """Tokens that were missing (> 0), or to spare (< 0)."""
        return self.needed - self.available


Margin = MarginBytes | MarginTokens


@dataclass(frozen=True, slots=True)
class Failure:
    """One engine failure with its evidence; picklable, so it travels from the engine to the store.

    ``line`` and ``line_number`` (1-based) are the first cause in the log, None where the log is silent
    and the exit status, a deadline or a probe is the evidence.
    """

    cls: FailureClass
    consequence: Consequence
    phase: BootPhase | None = None
    line: str | None = None
    line_number: int | None = None
    process: str | None = None
    margin: Margin | None = None
    exit_code: int | None = None
    advice: str = ""

    @classmethod
    def of(
        cls,
        name: str,
        *,
        phase: BootPhase | None = None,
        line: str | None = None,
        line_number: int | None = None,
        process: str | None = None,
        margin: Margin | None = None,
        exit_code: int | None = None,
        consequence: Consequence | None = None,
    ) -> "Failure":
        """A failure of the named class, with the consequence and advice of its class unless overridden."""
        kind = CLASSES[name]
        return cls(
            kind,
            consequence or kind.consequence,
            phase,
            line,
            line_number,
            process,
            margin,
            exit_code,
            kind.what_to_do,
        )

    def __str__(self) -> str:
        """One or two lines for a person: what happened, where, the evidence, what to do."""
        where = f" (while in phase {self.phase})" if self.phase else ""
        evidence = f": {self.line}" if self.line else ""
        return f"{self.cls.summary}{where}{evidence}\n{self.advice}."

    @property
    def teaches(self) -> bool:
        """Whether the configuration caused it, so that the sampler may learn from it."""
        return self.consequence is Consequence.TEACHES or (
            self.consequence is Consequence.PRUNES_VALUE and self.cls.teaches
        )


def classify(
    log: Path | Iterable[bytes],
    *,
    exit_code: int | None = None,
    stop_requested: bool | None = None,
    oom_kills: int | None = None,
    baseline_free_bytes: int | None = None,
) -> Failure | None:
    """The failure that a vLLM log shows, or None where there is none.

    ``exit_code`` is that of the server process (negative or 128 + n for a signal; None while it runs or
    when unknown). ``stop_requested`` says whether we asked it to stop (None: unknown, trust the log).
    ``oom_kills`` is how often the cgroup's kill counter rose meanwhile. ``baseline_free_bytes`` is the
    device memory that was free before anything of ours started: it tells a budget that can never fit
    from a leftover process.
    """
    raise NotImplementedError
