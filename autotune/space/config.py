"""The value that the whole program is about: a vLLM launch configuration.

A ``LaunchConfig`` holds flags by their full name without dashes (``max-num-seqs``) and environment
variables. A flag that is absent is left at vLLM's own default. Booleans become ``--flag`` or
``--no-flag``; structured values are JSON text.
"""

import hashlib
import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

FlagValue = bool | int | float | str


@dataclass(frozen=True, slots=True)
class LaunchConfig:
    """Flags and environment for ``vllm serve``; equal whenever they launch the same engine."""

    flags: tuple[tuple[str, FlagValue], ...] = ()
    env: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, flags: Mapping[str, FlagValue] | None = None, env: Mapping[str, str] | None = None) -> "LaunchConfig":
        """Build from mappings; order does not matter."""
        return cls(tuple(sorted((flags or {}).items())), tuple(sorted((env or {}).items())))

    def get(self, name: str) -> FlagValue | None:
        """The flag's value, or None where vLLM's default stands."""
        return dict(self.flags).get(name)

    def merged(self, other: "LaunchConfig") -> "LaunchConfig":
        """This configuration with ``other``'s flags and variables on top."""
        return LaunchConfig.of({**dict(self.flags), **dict(other.flags)}, {**dict(self.env), **dict(other.env)})

    def without(self, *names: str) -> "LaunchConfig":
        """This configuration with the named flags back at vLLM's default."""
        return LaunchConfig.of({k: v for k, v in self.flags if k not in names}, dict(self.env))

    def argv(self) -> list[str]:
        """Arguments for ``vllm serve MODEL``, full flag names only."""
        return [word for name, value in self.flags for word in _words(name, value)]

    def key(self) -> str:
        """Twelve hex digits that identify the configuration in logs, folders and the store."""
        text = json.dumps([self.flags, self.env], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def differences(self, base: "LaunchConfig") -> dict[str, tuple[FlagValue | None, FlagValue | None]]:
        """Flags that differ from ``base``, each as (value there, value here)."""
        names = sorted({name for name, _ in self.flags} | {name for name, _ in base.flags})
        pairs = {name: (base.get(name), self.get(name)) for name in names}
        return {name: (old, new) for name, (old, new) in pairs.items() if old is not new and old != new}

    def changes_from(self, base: "LaunchConfig") -> "LaunchConfig":
        """Only the flags and variables that ``base`` has not or has with another value."""
        flags = {name: new for name, (_, new) in self.differences(base).items() if new is not None}
        theirs = dict(base.env)
        return LaunchConfig.of(flags, {name: value for name, value in self.env if theirs.get(name) != value})

    def __str__(self) -> str:
        """A shell-ready line of assignments and flags, or a word for the empty configuration."""
        words = [f"{k}={shlex.quote(v)}" for k, v in self.env] + [shlex.quote(w) for w in self.argv()]
        return " ".join(words) or "vLLM defaults"


def _words(name: str, value: FlagValue) -> Iterator[str]:
    if isinstance(value, bool):
        yield f"--{name}" if value else f"--no-{name}"
    else:
        yield from (f"--{name}", str(value))
