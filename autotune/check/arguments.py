"""From words to settings, as the parser of one vLLM version would read them.

Every option is looked up in the version's flag table, which also tells how many words it takes. Where an
option is not there, a version that had it tells that; an option that never was is taken to have one value.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from autotune.check.launch import Launch, Word
from autotune.engine.flag_reader import Flag, Kind
from autotune.engine.flags import FlagTable, number_of
from autotune.space.config import FlagValue, LaunchConfig

Status = Literal["exact", "abbreviation", "ambiguous", "unknown"]
_ALONE: tuple[Kind, ...] = ("bool", "switch")


@dataclass(frozen=True, slots=True)
class Setting:
    """One option of a launch, and what the parser makes of it.

    ``word`` is the option as written, without value and nested key; ``key`` the path behind a dot. ``values``
    are the words of its value, none for a switch. ``flag`` is set for ``exact`` and ``abbreviation``.
    """

    word: str
    line: int
    status: Status
    flag: Flag | None = None
    negated: bool = False
    key: str = ""
    values: tuple[Word, ...] = ()
    candidates: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The flag's full name, or the word without dashes."""
        return self.flag.name if self.flag else self.word.lstrip("-")

    @property
    def known(self) -> bool:
        """Whether the value is known before the command runs."""
        return all(word.whole for word in self.values)

    @property
    def text(self) -> str:
        """The value as written."""
        return " ".join(word.text for word in self.values)

    @property
    def value(self) -> FlagValue:
        """The value as the engine will see it: true or false for switches, numbers for numbers, else text."""
        if self.flag and self.flag.kind in _ALONE:
            return not self.negated
        number = number_of(self.text) if self.flag and self.flag.kind in _NUMBERS else None
        if number is None:
            return self.text
        return int(number) if number == int(number) and self.flag and self.flag.kind != "float" else number


_NUMBERS: tuple[Kind, ...] = ("int", "size", "size_or_auto", "float")


@dataclass(frozen=True, slots=True)
class Arguments:
    """All settings of a launch in their order, the model, and words that belong to nothing."""

    settings: tuple[Setting, ...]
    model: Word | None = None
    strays: tuple[Word, ...] = ()

    def get(self, name: str) -> Setting | None:
        """The setting of that flag that counts: the last one. Nested keys do not count."""
        return next((s for s in reversed(self.settings) if s.flag and s.flag.name == name and not s.key), None)

    def value(self, name: str) -> FlagValue | None:
        """Its value, or None where it is not set, or not known."""
        setting = self.get(name)
        return setting.value if setting and setting.known else None

    def nested(self, name: str) -> dict[str, Any]:
        """A JSON setting with the keys that were given one by one (``-cc.mode 3``), at their top level."""
        found: dict[str, Any] = {}
        for setting in self.settings:
            if setting.flag and setting.flag.name == name and setting.known:
                found |= {setting.key: _loose(setting.text)} if setting.key else _object(setting.text)
        return found

    def config(self, launch: Launch) -> LaunchConfig:
        """What is known, as a launch configuration."""
        flags = {s.name: s.value for s in self.settings if s.flag and s.known and not s.key}
        return LaunchConfig.of(flags, {name: word.text for name, word in launch.env if word.whole})


def read_arguments(launch: Launch, table: FlagTable, older: FlagTable | None = None) -> Arguments:
    """The settings of a launch. ``older`` tells the number of values of options that ``table`` lacks."""
    return _Reader(launch, table, older).read()


@dataclass
class _Reader:
    launch: Launch
    table: FlagTable
    older: FlagTable | None
    place: int = 0

    def read(self) -> Arguments:
        settings: list[Setting] = []
        loose: list[Word] = []
        words = self.launch.words
        while self.place < len(words):
            word = words[self.place]
            self.place += 1
            if not word.whole and not word.text.startswith("-"):
                # Something like "$@", or the model in a variable.
                loose.append(word)
            elif is_option(word.text):
                settings.append(self._setting(word, has_model=bool(loose)))
            else:
                loose.append(word)
        named = next((s for s in settings if s.name == "model" and s.values), None)
        if self.launch.kind == "serve" and loose:
            return Arguments(tuple(settings), loose[0], tuple(w for w in loose[1:] if w.whole))
        return Arguments(tuple(settings), named.values[0] if named else None, tuple(w for w in loose if w.whole))

    def _setting(self, word: Word, has_model: bool) -> Setting:
        option, has_value, text = _split(word.text)
        option, _, key = option.partition(".")
        found = self.table.resolve(option)
        if self.launch.kind == "config" and has_value and text == "false":
            return Setting(option, word.line, found.status, found.flag, True, candidates=found.candidates)
        values: tuple[Word, ...] = ()
        if has_value:
            values = (Word(text, word.line, word.whole),)
        else:
            flag = found.flag or (self.older.resolve(option).flag if self.older else None)
            values = tuple(self._values(flag, found.negated, bool(key), has_model))
        return Setting(
            option, word.line, found.status, found.flag, found.negated, key.rstrip("+"), values, found.candidates
        )

    def _values(self, flag: Flag | None, negated: bool, nested: bool, has_model: bool) -> Iterator[Word]:
        kind = flag.kind if flag else "str"
        if (kind in _ALONE and not nested) or negated:
            return
        while (word := self._next()) and not self._is_model(word, flag, has_model):
            self.place += 1
            yield word
            if kind != "list":
                return

    def _next(self) -> Word | None:
        words = self.launch.words
        return words[self.place] if self.place < len(words) and not is_option(words[self.place].text) else None

    def _is_model(self, word: Word, flag: Flag | None, has_model: bool) -> bool:
        """Whether a word behind an option that nobody knows is rather the model."""
        return flag is None and self.launch.kind == "serve" and not has_model and "/" in word.text


def is_option(text: str) -> bool:
    """Whether the parser takes a word for an option; negative numbers are values."""
    return len(text) > 1 and text[0] == "-" and number_of(text) is None


def _split(text: str) -> tuple[str, bool, str]:
    """Option, whether a value is attached, and the value. ``-O3`` is ``-O`` with 3."""
    if text.startswith("-O") and len(text) > 2:
        return "-O", True, text[2:].lstrip("=")
    option, has_value, value = text.partition("=")
    return option, bool(has_value), value


def _object(text: str) -> dict[str, Any]:
    value = _loose(text)
    return value if isinstance(value, dict) else {}


def _loose(text: str) -> Any:
    """JSON where it is, else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text
