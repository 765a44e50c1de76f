"""Reads a unit file as systemd does (systemd.syntax(7), systemd.service(5)): enough to run its commands here."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

_TOKEN = re.compile(r"""\s*((?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\\.|[^\s"'\\])+)""", re.DOTALL)
_PIECE = re.compile(r""""((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'|((?:\\.|[^\s"'\\])+)""", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t"}


@dataclass(frozen=True)
class Unit:
    """Every setting in its order, continuation lines joined."""

    settings: tuple[tuple[str, str], ...]

    @classmethod
    def parse(cls, text: str) -> "Unit":
        joined = re.sub(r"\\\n(?:[#;].*\n)*", " ", text)
        lines = [line for line in joined.splitlines() if line and line[0] not in "#;["]
        return cls(tuple((key, value.strip()) for key, _, value in (line.partition("=") for line in lines)))

    def all(self, key: str) -> list[str]:
        return [value for name, value in self.settings if name == key]

    def environment(self, specifiers: Mapping[str, str]) -> dict[str, str]:
        words = [word for line in self.all("Environment") for word in split(line, specifiers)]
        return dict(word.split("=", 1) for word in words)

    def command(self, key: str, environment: Mapping[str, str], specifiers: Mapping[str, str]) -> list[str]:
        (line,) = self.all(key)
        return [expand(word, environment) for word in split(line, specifiers)]


def split(text: str, specifiers: Mapping[str, str]) -> list[str]:
    """Words without their quotes; specifiers such as %S are put in."""
    return [re.sub(r"%(.)", lambda m: {"%": "%", **specifiers}[m[1]], _unquoted(word)) for word in _TOKEN.findall(text)]


def expand(word: str, environment: Mapping[str, str]) -> str:
    """``${NAME}`` by its value, ``$$`` by one dollar sign."""
    return re.sub(r"\$\$|\$\{(\w+)\}", lambda m: environment.get(m[1], "") if m[1] else "$", word)


def _unquoted(word: str) -> str:
    pieces = ("".join(groups) for groups in _PIECE.findall(word))
    return "".join(re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), piece, flags=re.DOTALL) for piece in pieces)
