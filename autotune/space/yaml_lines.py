"""YAML that remembers where every value stands, so that an error can name the line.

PyYAML's node tree is walked once; plain values go into ordinary dicts and lists, the line of each key and
item into a table by path. Duplicate keys, which YAML readers commonly swallow, are errors.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from autotune.errors import UsageError

Place = tuple[str | int, ...]

_TOO_LARGE = 1_000_000
_TOO_MANY = 20_000


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed file: its content, and the line (from 1) of every path inside it."""

    path: Path
    content: dict[str, Any]
    lines: Mapping[Place, int] = field(default_factory=dict)

    def line(self, place: Place) -> int:
        """The line of a path, or of the nearest part of it that exists."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)

    def at(self, place: Place) -> str:
        """``FILE:LINE`` of a path."""
        return f"{self.path}:{self.line(place)}"


def read_document(path: Path) -> Document:
    """Read one YAML mapping. Raises ``UsageError`` naming file and line."""
    text = _text(path)
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = mark.line + 1 if mark else 1
        raise UsageError(f"{path}:{line}: not YAML: {error.problem or error}") from error
    except yaml.YAMLError as error:
        raise UsageError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise UsageError(f"{path}: nested too deeply to be a space file") from error
    if not isinstance(node, yaml.MappingNode):
        found = "nothing" if node is None else f"a {node.tag.rsplit(':', 1)[-1]}"
        raise UsageError(f"{path}:1: expected a mapping with the key 'parameters', found {found}")
    reader = _Reader(path)
    content = reader.mapping(node, ())
    return Document(path, content, reader.lines)


def _text(path: Path) -> str:
    try:
        raw = path.read_bytes()
        if len(raw) > _TOO_LARGE:
            raise UsageError(f"{path} has {len(raw)} bytes; a space file is far smaller")
        return raw.decode("utf-8")
    except OSError as error:
        raise UsageError(f"cannot read the space file {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not text in UTF-8; expected a YAML file") from error


class _Reader:
    """Turns nodes into plain values and notes their lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._scalars = yaml.SafeLoader("")
        self._open: set[int] = set()
        self.lines: dict[Place, int] = {}

    def mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self._key(key_node)
            here = (*place, key)
            if key in result:
                line = key_node.start_mark.line + 1
                raise UsageError(f"{self._path}:{line}: duplicate key {key!r} (first on line {self.lines[here]})")
            result[key] = None
            self.lines[here] = key_node.start_mark.line + 1
            result[key] = self._value(value_node, here)
        return result

    def _key(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode) or node.tag.endswith(":merge"):
            line = node.start_mark.line + 1
            raise UsageError(f"{self._path}:{line}: expected a plain word as key")
        return str(node.value)

    def _value(self, node: yaml.Node, place: Place) -> Any:
        if id(node) in self._open:
            raise UsageError(f"{self._path}:{node.start_mark.line + 1}: an alias that contains itself")
        if len(self.lines) > _TOO_MANY:
            raise UsageError(f"{self._path}: more than {_TOO_MANY} values; a space file is far smaller")
        self._open.add(id(node))
        try:
            return self._plain(node, place)
        finally:
            self._open.discard(id(node))

    def _plain(self, node: yaml.Node, place: Place) -> Any:
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, place)
        if isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                self.lines[(*place, index)] = item.start_mark.line + 1
            return [self._value(item, (*place, i)) for i, item in enumerate(node.value)]
        return self._scalar(node)

    def _scalar(self, node: yaml.Node) -> Any:
        try:
            return self._scalars.construct_object(node)
        except (yaml.YAMLError, ValueError) as error:
            line = node.start_mark.line + 1
            raise UsageError(f"{self._path}:{line}: cannot read the value {node.value!r}") from error
