"""What a type annotation in vLLM's sources says about the values of a flag.

Aliases, enums and dataclasses are followed into the modules that define them. The parts of a union are
gathered side by side, since vLLM asks of them only "is there a bool, a Literal, a list ...".
"""

import ast
import operator
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from autotune.engine.vllm_source import UNSTATED, Binding, Module, SourceTree, literal

_PLAIN = {"bool", "int", "float", "str", "dict", "list", "tuple", "set"}
_ALIASES = {"List": "list", "Dict": "dict", "Tuple": "tuple", "Set": "set", "Sequence": "list"}


@dataclass(frozen=True, slots=True)
class Hints:
    """What an annotation says: names of plain types, literal values, what lists hold, a dataclass's fields."""

    names: frozenset[str] = frozenset()
    values: tuple[Any, ...] = ()
    element: "Hints | None" = None
    open: bool = False
    fields: tuple[str, ...] = ()

    def __or__(self, other: "Hints") -> "Hints":
        return Hints(
            self.names | other.names,
            self.values + other.values,
            self.element or other.element,
            self.open or other.open,
            self.fields or other.fields,
        )


def read_hints(source: SourceTree, module: Module, node: ast.expr) -> Hints:
    """What an annotation says, with aliases followed into the modules that define them."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            return read_hints(source, module, ast.parse(node.value, mode="eval").body)
        return Hints(frozenset({"None"})) if node.value is None else Hints()
    if isinstance(node, ast.BinOp):
        return read_hints(source, module, node.left) | read_hints(source, module, node.right)
    if isinstance(node, ast.Subscript):
        return _generic_hints(source, module, node)
    if isinstance(node, ast.Name):
        return _named_hints(source, module, node.id)
    return Hints(frozenset({"class"}))


def _generic_hints(source: SourceTree, module: Module, node: ast.Subscript) -> Hints:
    head = ast.unparse(node.value).split(".")[-1]
    args = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if head == "Literal":
        stated = tuple(value for arg in args if (value := literal(arg)) is not UNSTATED)
        aliases = [read_hints(source, module, arg) for arg in args if isinstance(arg, ast.Name)]
        return _union(Hints(values=stated), *aliases)
    if head in ("Union", "Optional"):
        none = Hints(frozenset({"None"} if head == "Optional" else ()))
        return _union(none, *(read_hints(source, module, arg) for arg in args))
    if head in ("Annotated", "SkipValidation"):
        return read_hints(source, module, args[0])
    name = _ALIASES.get(head, head)
    if name in ("list", "tuple", "set"):
        return Hints(frozenset({name}), element=read_hints(source, module, args[0]))
    return Hints(frozenset({name if name in _PLAIN else "class"}))


def _union(*parts: Hints) -> Hints:
    return reduce(operator.or_, parts)


def _named_hints(source: SourceTree, module: Module, name: str) -> Hints:
    if name in _PLAIN or name in _ALIASES:
        return Hints(frozenset({_ALIASES.get(name, name)}))
    binding = source.follow(module, name)
    node = binding.node if binding else None
    if binding and isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
        found = read_hints(source, binding.module, node.value)
        return replace(found, open=found.open or binding.typing_only)
    if binding and isinstance(node, ast.ClassDef):
        return _class_hints(source, binding, node)
    return Hints(frozenset({"class"}))


def _class_hints(source: SourceTree, binding: Binding, node: ast.ClassDef) -> Hints:
    """An enum's values (late-checked, so open), a dataclass, a kind of dict, or some other class."""
    members = source.enum_values(binding)
    if members:
        return _enum_hints(members)
    if any("config" in text or "dataclass" in text for text in map(ast.unparse, node.decorator_list)):
        return Hints(frozenset({"dataclass"}), fields=tuple(source.fields(binding)))
    if any(ast.unparse(base).split("[")[0] == "dict" for base in node.bases):
        return Hints(frozenset({"dict"}))
    return Hints(frozenset({"class"}))


def _enum_hints(members: Mapping[str, Any]) -> Hints:
    """People write an enum's value, or its member's name where the value is a path inside vLLM."""
    by_name = any("." in str(value) for value in members.values())
    values = tuple(members) if by_name else tuple(v for v in members.values() if isinstance(v, str | int))
    return Hints(values=values, open=True)
