"""The flags that an installed vLLM accepts, read from its sources and cached.

``load_flags`` reads them (a fraction of a second, nothing of vLLM runs) and keeps the table as JSON in the
user's cache folder, under a key of the version and of the age of the files it was read from. A table answers
what vLLM's own parser would: does this flag exist, is it an abbreviation, may it have this value.

Flags come and go between versions, so a flag that is missing here is left out of the search with its reason
instead of failing at boot.
"""

import difflib
import hashlib
import json
import operator
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from autotune.engine import flag_reader, vllm_source, vllm_types
from autotune.engine.flag_reader import Flag, read_known_env, read_serve_flags, reads_pairs
from autotune.engine.install import VllmInstall
from autotune.errors import EnvironmentFault

FEWEST_FLAGS = 50
# Fractions only with a decimal unit, as vLLM reads them.
_SIZE = re.compile(r"(\d+)([kKmMgGtT]?)|(\d+\.\d+)([kmgt])")
_PAIRS = (("--enable-", "--disable-"), ("--disable-", "--enable-"))


@dataclass(frozen=True, slots=True)
class Resolution:
    """What vLLM's parser would make of a word such as ``--max-num-seq`` or ``--no-enable-prefix-caching``.

    ``flag`` is set for ``exact`` and ``abbreviation``. ``candidates`` holds the full words that an ambiguous
    one could mean, or those that an unknown one resembles.
    """

    status: Literal["exact", "abbreviation", "ambiguous", "unknown"]
    flag: Flag | None = None
    negated: bool = False
    candidates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FlagTable:
    """Every flag of one vLLM's ``serve`` command, and the environment variables that it knows.

    ``paired``: the parser takes ``--disable-x`` for ``--no-enable-x``, and the other way round (since 0.33).
    """

    version: str
    flags: tuple[Flag, ...]
    known_env: tuple[str, ...] = ()
    paired: bool = False

    def get(self, name: str) -> Flag | None:
        """The flag of that full name, without dashes."""
        return next((flag for flag in self.flags if flag.name == name), None)

    def resolve(self, token: str) -> Resolution:
        """Look up one command-line word; ``=VALUE`` and ``.key`` behind it are ignored, ``_`` means ``-``."""
        words = self._words()
        word = _plain(token)
        if word in words:
            return _resolved("exact", words[word])
        if token.startswith("-O") and (level := self._level()):
            return Resolution("exact", level)
        matches = sorted(w for w in words if w.startswith(word)) if word.startswith("--") and len(word) > 2 else []
        if len(matches) == 1:
            return _resolved("abbreviation", words[matches[0]])
        if matches:
            return Resolution("ambiguous", candidates=tuple(matches))
        return Resolution("unknown", candidates=tuple(difflib.get_close_matches(word, words, n=3)))

    def accepts(self, name: str, value: object) -> bool:
        """Whether ``--name value`` would pass, as far as the sources state it."""
        return self.why_not(name, value) is None

    def why_not(self, name: str, value: object) -> str | None:
        """Why ``--name value`` would not pass, in one line, or None where it would."""
        flag = self.get(name)
        if flag is None:
            near = self.resolve(f"--{name}").candidates
            return f"vLLM {self.version} has no --{name}" + (f" (nearest: {', '.join(near)})" if near else "")
        if flag.choices is not None:
            return _not_a_choice(flag, value)
        if not _fits(flag, value):
            return f"--{name} takes {_WANTED[flag.kind]}, not {value!r}"
        return _out_of_bounds(flag, value)

    def to_json(self) -> dict[str, Any]:
        """A form that survives JSON; ``from_json`` reads it back."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "FlagTable":
        """The table that ``to_json`` wrote. Raises ``KeyError`` or ``TypeError`` on anything else."""
        flags = tuple(flag_from_json(row) for row in data["flags"])
        return cls(data["version"], flags, tuple(data["known_env"]), data["paired"])

    def _level(self) -> Flag | None:
        """The flag behind ``-O3``: a level of its own, in older versions a part of the compilation config."""
        return next((f for f in self.flags if "-O" in f.aliases), self.get("optimization-level"))

    def _words(self) -> dict[str, tuple[Flag, bool]]:
        """Every word that the parser knows, as (flag, negated)."""
        words = {}
        for flag in self.flags:
            for word in (f"--{flag.name}", *flag.aliases):
                words[word] = (flag, False)
                words |= dict.fromkeys(self._negations(flag, word), (flag, True))
        return words

    def _negations(self, flag: Flag, word: str) -> Iterator[str]:
        """The words that mean the opposite of ``word``."""
        if flag.negatable and word.startswith("--"):
            yield f"--no-{word[2:]}"
            if self.paired:
                yield from (there + word.removeprefix(here) for here, there in _PAIRS if word.startswith(here))


_WANTED: Mapping[str, str] = {
    "bool": "true or false",
    "switch": "true only (there is no --no- form)",
    "int": "a whole number",
    "size": "a whole number, also written like 8k or 25G",
    "size_or_auto": "a whole number, also written like 8k, or auto",
    "float": "a number",
    "list": "whole numbers",
}


def load_flags(install: VllmInstall, cache_dir: Path | None = None) -> FlagTable:
    """The table of one vLLM, from the cache where it is still true, else from the sources.

    Raises ``EnvironmentFault`` where the sources hold fewer flags than any vLLM has: a table that is wrong
    would be worse than none. A cache that cannot be read or written only costs the time of reading again.
    """
    path = (cache_dir or _cache_dir()) / f"flags-{install.version}-{_stamp(install.package_dir)}.json"
    try:
        return FlagTable.from_json(json.loads(path.read_bytes()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        table = read_flags(install)
        _save(path, table)
        return table


def read_flags(install: VllmInstall) -> FlagTable:
    """The table of one vLLM, from the sources. Raises ``EnvironmentFault`` like ``load_flags``."""
    flags = read_serve_flags(install.package_dir)
    if len(flags) < FEWEST_FLAGS:
        raise EnvironmentFault(
            f"Found only {len(flags)} flags in vLLM {install.version} at {install.package_dir}: "
            "its sources are incomplete, or this version is laid out in a way that autotune cannot read."
        )
    return FlagTable(install.version, flags, read_known_env(install.package_dir), reads_pairs(install.package_dir))


def flag_from_json(row: Mapping[str, Any]) -> Flag:
    """One flag of ``to_json``, its lists being tuples again; what is left out has its default."""
    lists = {name: _tuple(row[name]) for name in ("aliases", "choices", "keys") if name in row}
    bounds = tuple((sign, limit) for sign, limit in row.get("bounds", ()))
    return Flag(**{**row, **lists, "bounds": bounds})


def number_of(value: object) -> float | None:
    """A value as vLLM reads numbers: 8k is 8000, 8K is 8192, ``auto`` is -1; None where it is none."""
    if isinstance(value, bool) or value is None:
        return None
    text = str(value).strip()
    if match := _SIZE.fullmatch(text):
        number, unit = match[1] or match[3], match[2] or match[4] or " "
        base = 1024.0 if unit.isupper() else 1000.0
        return float(number) * base ** " kmgt".index(unit.lower())
    if text == "auto":
        return -1.0
    return float(text) if _is_number(text) else None


def _resolved(status: Literal["exact", "abbreviation"], found: tuple[Flag, bool]) -> Resolution:
    return Resolution(status, found[0], found[1])


def _plain(token: str) -> str:
    """The option word of a token: no value, no nested key, dashes for underscores."""
    word = token.split("=", 1)[0].split(".", 1)[0]
    return word.replace("_", "-") if word.startswith("--") else word


def _not_a_choice(flag: Flag, value: object) -> str | None:
    choices = flag.choices or ()
    text = str(value)
    known = {str(choice) for choice in choices}
    if text in known or (flag.open_choices and text.lower() in {choice.lower() for choice in known}):
        return None
    if isinstance(value, str) and flag.kind == "list" and set(value.split()) <= known:
        return None
    return f"--{flag.name} does not take {text!r} (choices: {', '.join(sorted(known))})"


def _fits(flag: Flag, value: object) -> bool:
    text = "" if isinstance(value, bool) else str(value)
    match flag.kind:
        case "bool":
            return isinstance(value, bool)
        case "switch":
            return value is True
        case "int":
            return re.fullmatch(r"-?\d+", text) is not None
        case "size":
            return _SIZE.fullmatch(text) is not None
        case "size_or_auto":
            return text in ("auto", "-1") or _SIZE.fullmatch(text) is not None
        case "float":
            return _is_number(text)
        case "list" if flag.items == "int":
            return all(re.fullmatch(r"-?\d+", word) for word in text.split())
        case _:
            return True


_BOUNDS: Mapping[str, tuple[Callable[[float, float], bool], str]] = {
    "gt": (operator.gt, "more than"),
    "ge": (operator.ge, "at least"),
    "lt": (operator.lt, "less than"),
    "le": (operator.le, "at most"),
}


def _out_of_bounds(flag: Flag, value: object) -> str | None:
    number = number_of(value)
    for sign, limit in flag.bounds:
        holds, words = _BOUNDS[sign]
        if number is not None and not holds(number, limit):
            return f"--{flag.name} must be {words} {limit:g}, not {value}"
    return None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _tuple(values: list[Any] | None) -> tuple[Any, ...] | None:
    return None if values is None else tuple(values)


def _cache_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "vllm-autotune"


def _stamp(package_dir: Path) -> str:
    """Changes with the package's place, with its files, and with the code that reads them."""
    digest = hashlib.sha256(str(package_dir.resolve()).encode())
    for module in (vllm_source, vllm_types, flag_reader):
        digest.update(Path(str(module.__file__)).read_bytes())
    for folder in ("config", "engine", "entrypoints", "."):
        pattern = package_dir.glob("*.py") if folder == "." else (package_dir / folder).rglob("*.py")
        for path in sorted(pattern):
            status = path.stat()
            digest.update(f"{path.name} {status.st_mtime_ns} {status.st_size}".encode())
    return digest.hexdigest()[:12]


def _save(path: Path, table: FlagTable) -> None:
    """Write whole or not at all, so that a run beside us never reads half a file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        with os.fdopen(handle, "w") as file:
            json.dump(table.to_json(), file)
        os.replace(name, path)
    except OSError:
        return
