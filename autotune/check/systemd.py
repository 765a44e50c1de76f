"""Finds launches in a systemd unit: ``ExecStart=`` with the variables of ``Environment=``."""

import re
from collections.abc import Iterator

from autotune.check.launch import Launch, Word
from autotune.check.shell import launches_in_command, split_words

# What may stand before the path: "-" ignores failure, "@" renames, the others change rights.
_PREFIXES = "-@:+!|"
_SPECIFIER = re.compile(r"%[a-zA-Z]")


def is_unit(text: str) -> bool:
    """Whether a text is a systemd unit that starts something; a script may well hold one, and is none."""
    first = next((line for line in text.splitlines() if line.strip() and not _is_comment(line)), "")
    return first.startswith("[") and re.search(r"^\[Service\]\s*$", text, re.M) is not None


def launches_in_unit(text: str, line: int = 1) -> list[Launch]:
    """Every launch of a unit whose first line is ``line`` of its file. An ``EnvironmentFile=`` is not read."""
    values: dict[str, Word] = {}
    settings = [(name, value, at + line - 1) for name, value, at in _settings(text)]
    for name, value, at in settings:
        if name == "Environment":
            for word in split_words(value, at, values):
                variable, has_value, content = word.text.partition("=")
                if has_value:
                    values[variable] = Word(content, word.line, word.whole)
    found: list[Launch] = []
    for name, value, at in settings:
        if name == "ExecStart":
            words = [_specified(word) for word in split_words(value.lstrip(_PREFIXES), at, values)]
            found += [launch.with_env(values.items()) for launch in launches_in_command(words)]
    return found


def _settings(text: str) -> Iterator[tuple[str, str, int]]:
    """Name, value with its continued lines, and line."""
    lines = text.splitlines()
    place = 0
    while place < len(lines):
        first, value = place, lines[place]
        while value.endswith("\\") and place + 1 < len(lines):
            place += 1
            # systemd skips comments between continued lines; the empty line keeps the count.
            value += "\n" + ("\\" if _is_comment(lines[place]) else lines[place])
        name, has_value, content = value.partition("=")
        if has_value and not _is_comment(name):
            yield name.strip(), content.strip(), first + 1
        place += 1


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith(("#", ";"))


def _specified(word: Word) -> Word:
    return Word(word.text, word.line, word.whole and not _SPECIFIER.search(word.text))
