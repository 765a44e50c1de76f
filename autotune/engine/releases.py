"""What published vLLM versions accept, for versions that are not installed here.

``flag_tables/releases.json`` was made from the published wheels by ``scripts/make_flag_tables``; it names the
file and the sha256 of each. Every flag, variable and name stands there once with the versions it holds for,
so the same data tell in which version something came or went. The versions are the last patch of every
minor one: a change is known to lie between two of them.

The installed vLLM is never looked up here, it is read from its own sources.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from packaging.version import InvalidVersion, Version

from autotune.engine.flags import FlagTable, flag_from_json
from autotune.engine.vocabulary import Vocabulary
from autotune.errors import UsageError

RELEASES_FILE = Path(__file__).with_name("flag_tables") / "releases.json"

Kind = Literal["env", "tool_parsers", "reasoning_parsers", "architectures"]


@dataclass(frozen=True, slots=True)
class Lifetime:
    """When something existed, among the versions that are known.

    ``first`` and ``last`` are the ends of its latest unbroken run; ``before`` and ``after`` the known versions
    next to them that lack it, None at the ends of the list.
    """

    first: str
    last: str
    before: str | None
    after: str | None

    @property
    def came(self) -> str:
        """``since 0.8.4`` in words that do not claim more than is known."""
        return f"came between {self.before} and {self.first}" if self.before else f"is in {self.first} already"

    @property
    def went(self) -> str:
        """When it went, or that it did not."""
        return f"last in {self.last}, gone in {self.after}" if self.after else f"still in {self.last}"


@dataclass(frozen=True)
class Releases:
    """The known versions, oldest first, and what each accepts."""

    data: Mapping[str, Any]

    @cached_property
    def versions(self) -> tuple[str, ...]:
        return tuple(release["version"] for release in self.data["releases"])

    def nearest(self, wanted: str) -> str:
        """The known version to take for ``wanted``: itself, the last patch of a minor version, or the one before it.

        Raises ``UsageError`` for a text that is no version, and for one older than all that are known.
        """
        asked = _parsed(wanted)
        known = {version: Version(version) for version in self.versions}
        tests = (
            [v for v in known if known[v].public == asked.public],
            [v for v in known if known[v].release == asked.release],
            [v for v in known if known[v].release[:2] == asked.release[:2] and len(asked.release) == 2],
            [v for v in known if known[v] <= asked],
        )
        for candidates in tests:
            if candidates:
                return candidates[-1]
        raise UsageError(f"--vllm {wanted}: the oldest version that autotune knows is {self.versions[0]}.")

    def table(self, version: str) -> FlagTable:
        """The flags and variables of a known version. Raises ``KeyError`` for any other."""
        rows = [row for row in self.data["flags"] if self._holds(row["in"], version)]
        flags = tuple(flag_from_json({k: v for k, v in row.items() if k != "in"}) for row in rows)
        paired = next(r["paired"] for r in self.data["releases"] if r["version"] == version)
        return FlagTable(version, flags, self._names("env", version), paired)

    def ever(self, words: Collection[str]) -> FlagTable:
        """The flags behind these options (with their dashes) in the last version that had each."""
        found: dict[str, Any] = {}
        for row in sorted(self.data["flags"], key=lambda row: self._places[row["in"][-1][1]]):
            if f"--{row['name']}" in words or any(alias in words for alias in row.get("aliases", ())):
                found[row["name"]] = row
        flags = (flag_from_json({k: v for k, v in row.items() if k != "in"}) for row in found.values())
        return FlagTable("any", tuple(flags))

    def vocabulary(self, version: str) -> Vocabulary:
        """The names that a known version knows. Raises ``KeyError`` for any other."""
        kinds: tuple[Kind, ...] = ("tool_parsers", "reasoning_parsers", "architectures")
        return Vocabulary(*(self._names(kind, version) for kind in kinds))

    def flag_lifetime(self, word: str) -> Lifetime | None:
        """When the option ``word`` (with its dashes; an alias counts) existed; None where it never did."""
        rows = [row for row in self.data["flags"] if word == f"--{row['name']}" or word in row.get("aliases", ())]
        return self._lifetime([span for row in rows for span in row["in"]])

    def name_lifetime(self, kind: Kind, name: str) -> Lifetime | None:
        """When a variable, parser or architecture existed; None where it never did."""
        return self._lifetime(self.data[kind].get(name, ()))

    def choice_lifetime(self, flag: str, choice: str) -> Lifetime | None:
        """When ``--flag choice`` was among the values that the source names."""
        rows = [row for row in self.data["flags"] if row["name"] == flag and choice in (row.get("choices") or ())]
        return self._lifetime([span for row in rows for span in row["in"]])

    @cached_property
    def _places(self) -> dict[str, int]:
        return {version: place for place, version in enumerate(self.versions)}

    def _holds(self, spans: Sequence[Sequence[str]], version: str) -> bool:
        place = self._places[version]
        return any(self._places[first] <= place <= self._places[last] for first, last in spans)

    def _names(self, kind: Kind, version: str) -> tuple[str, ...]:
        return tuple(name for name, spans in self.data[kind].items() if self._holds(spans, version))

    def _lifetime(self, spans: Sequence[Sequence[str]]) -> Lifetime | None:
        held = [version for version in self.versions if self._holds(spans, version)]
        if not held:
            return None
        last = first = self._places[held[-1]]
        while first and self.versions[first - 1] in held:
            first -= 1
        before = self.versions[first - 1] if first else None
        after = self.versions[last + 1] if last + 1 < len(self.versions) else None
        return Lifetime(self.versions[first], self.versions[last], before, after)


def load_releases(path: Path = RELEASES_FILE) -> Releases:
    """The data that come with this package."""
    return Releases(json.loads(path.read_bytes()))


def _parsed(text: str) -> Version:
    try:
        return Version(text.removeprefix("v"))
    except InvalidVersion as error:
        raise UsageError(f"--vllm {text} is no version; give one like 0.32.0, or `installed`.") from error
