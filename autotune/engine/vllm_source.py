"""Reads vLLM's Python sources without running them: names, types and defaults as the source states them.

vLLM's flags are built from annotated dataclass fields that lie in many files and move between versions. So
a class is found by its name, and every name in it is followed through the imports of its module, as Python
would do, but on syntax trees. Only the files on the way are parsed.

What cannot be read (a computed default, a type of another library) is ``UNSTATED`` or an open type; it is
never guessed.
"""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final


class Unstated:
    """The type of ``UNSTATED``: the source does not state this value in a form that can be read."""


UNSTATED: Final = Unstated()
_MAX_HOPS = 12


@dataclass(frozen=True, slots=True)
class Binding:
    """What a module binds to a name. ``typing_only``: bound for type checkers, something else at run time."""

    module: "Module"
    node: ast.stmt
    name: str
    typing_only: bool = False


@dataclass(frozen=True)
class Module:
    """One parsed file. ``package`` is the dotted name that relative imports start from."""

    name: str
    package: str
    tree: ast.Module

    @cached_property
    def bindings(self) -> dict[str, Binding]:
        """Names bound at top level; what is bound for type checkers wins, because it says more."""
        found: dict[str, Binding] = {}
        for binding in self._bindings(self.tree.body, typing_only=False):
            if binding.name not in found or not found[binding.name].typing_only:
                found[binding.name] = binding
        return found

    def _bindings(self, body: Iterable[ast.stmt], typing_only: bool) -> Iterator[Binding]:
        for node in body:
            if isinstance(node, ast.If):
                checking = "TYPE_CHECKING" in ast.dump(node.test)
                yield from self._bindings(node.body, typing_only or checking)
                yield from self._bindings(node.orelse, typing_only)
            elif isinstance(node, ast.Try):
                yield from self._bindings(node.body, typing_only)
            else:
                yield from (Binding(self, node, name, typing_only) for name in _bound_names(node))


@dataclass
class SourceTree:
    """The package under ``root``, parsed file by file as it is asked for."""

    root: Path
    _modules: dict[str, Module | None] = field(default_factory=dict)

    def module(self, name: str) -> Module | None:
        """The module of that dotted name, or None where this package does not hold it (or cannot parse)."""
        if name not in self._modules:
            self._modules[name] = self._parse(name)
        return self._modules[name]

    def find(self, kind: type[ast.stmt], name: str, folders: Iterable[str]) -> Binding | None:
        """A top-level class or function by its name, wherever in ``folders`` (then anywhere) it lies."""
        word = "class" if kind is ast.ClassDef else "def"
        wanted = f"{word} {name}".encode()
        for path in self._files(folders):
            if wanted in path.read_bytes() and (module := self.module(self._dotted(path))):
                binding = module.bindings.get(name)
                if binding and isinstance(binding.node, kind):
                    return binding
        return None

    def follow(self, module: Module, name: str) -> Binding | None:
        """What ``name`` means in ``module``, with imports followed inside this package."""
        typing_only = False
        for _ in range(_MAX_HOPS):
            binding = module.bindings.get(name)
            if binding is None or not isinstance(binding.node, ast.ImportFrom):
                return binding and Binding(binding.module, binding.node, name, binding.typing_only or typing_only)
            typing_only = typing_only or binding.typing_only
            origin = next(a.name for a in binding.node.names if (a.asname or a.name) == name)
            source = self.module(_absolute(binding.node, module.package))
            if source is None:
                return None
            module, name = source, origin
        return None

    def ancestry(self, binding: Binding) -> list[Binding]:
        """The class and those of its bases that lie in this package, nearest first."""
        line = [binding]
        if isinstance(binding.node, ast.ClassDef):
            for base in binding.node.bases:
                parent = self.follow(binding.module, base.id) if isinstance(base, ast.Name) else None
                if parent and isinstance(parent.node, ast.ClassDef):
                    line += self.ancestry(parent)
        return line

    def fields(self, binding: Binding) -> dict[str, tuple[Module, ast.AnnAssign]]:
        """Annotated fields of a dataclass, inherited ones first, each with the module that states it."""
        found: dict[str, tuple[Module, ast.AnnAssign]] = {}
        for owner in reversed(self.ancestry(binding)):
            for node in owner.node.body if isinstance(owner.node, ast.ClassDef) else ():
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                    found[node.target.id] = (owner.module, node)
        return found

    def enum_values(self, binding: Binding) -> dict[str, Any] | None:
        """Members of an ``Enum`` class by name, or None where the class is no enum."""
        bases = {ast.unparse(base).split(".")[-1] for owner in self.ancestry(binding) for base in _bases(owner)}
        if not bases & {"Enum", "IntEnum", "StrEnum"} or not isinstance(binding.node, ast.ClassDef):
            return None
        members = (node for node in binding.node.body if isinstance(node, ast.Assign))
        return {node.targets[0].id: literal(node.value) for node in members if isinstance(node.targets[0], ast.Name)}

    def value(self, module: Module, node: ast.expr | None) -> Any:
        """The value of an expression: a literal, a constant, another class's default, an enum member."""
        if node is None:
            return UNSTATED
        if isinstance(node, ast.Name):
            return self._constant(self.follow(module, node.id))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            return self._member(self.follow(module, node.value.id), node.attr)
        if isinstance(node, ast.Call):
            return self._call(module, node)
        return literal(node)

    def _constant(self, binding: Binding | None) -> Any:
        node = binding.node if binding else None
        if binding and isinstance(node, ast.Assign | ast.AnnAssign):
            return self.value(binding.module, node.value)
        return UNSTATED

    def _member(self, binding: Binding | None, name: str) -> Any:
        """``SomeConfig.field`` is the field's default, ``SomeEnum.MEMBER`` the member's value."""
        if binding is None or not isinstance(binding.node, ast.ClassDef):
            return UNSTATED
        members = self.enum_values(binding)
        if members is not None:
            return members.get(name, UNSTATED)
        module, node = self.fields(binding).get(name, (None, None))
        return self.value(module, node.value) if module and node else UNSTATED

    def _call(self, module: Module, node: ast.Call) -> Any:
        """``Field(...)`` and ``field(...)`` state a default; ``get_field`` points at another class's."""
        name = ast.unparse(node.func).split(".")[-1]
        keywords = {keyword.arg: keyword.value for keyword in node.keywords}
        if name in ("Field", "field"):
            if "default_factory" in keywords:
                return _made_by(keywords["default_factory"])
            return self.value(module, keywords.get("default", node.args[0] if node.args else None))
        if name == "get_field" and len(node.args) == 2 and isinstance(node.args[0], ast.Name):
            return self._member(self.follow(module, node.args[0].id), str(literal(node.args[1])))
        return UNSTATED

    def _parse(self, name: str) -> Module | None:
        first, *rest = name.split(".")
        if first != self.root.name:
            return None
        stem = self.root.joinpath(*rest)
        for path, package in ((stem / "__init__.py", name), (stem.with_suffix(".py"), name.rpartition(".")[0])):
            if path.is_file():
                try:
                    return Module(name, package, ast.parse(path.read_bytes()))
                except (SyntaxError, ValueError):
                    return None
        return None

    def _files(self, folders: Iterable[str]) -> Iterator[Path]:
        for folder in folders:
            yield from sorted((self.root / folder).rglob("*.py"))
        yield from sorted(self.root.rglob("*.py"))

    def _dotted(self, path: Path) -> str:
        parts = path.relative_to(self.root.parent).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def literal(node: ast.expr | None) -> Any:
    """The value of a literal expression, or ``UNSTATED``."""
    try:
        return ast.literal_eval(node) if node is not None else UNSTATED
    except (ValueError, TypeError, SyntaxError):
        return UNSTATED


def _made_by(factory: ast.expr) -> Any:
    """What ``default_factory`` makes, where it is a lambda of a literal or an empty container."""
    if isinstance(factory, ast.Lambda):
        return literal(factory.body)
    empty: dict[str, Any] = {"list": [], "set": [], "tuple": [], "dict": {}}
    return empty.get(factory.id, UNSTATED) if isinstance(factory, ast.Name) else UNSTATED


def _bases(binding: Binding) -> list[ast.expr]:
    return binding.node.bases if isinstance(binding.node, ast.ClassDef) else []


def _bound_names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return [node.name]
    if isinstance(node, ast.ImportFrom):
        return [alias.asname or alias.name for alias in node.names]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _absolute(node: ast.ImportFrom, package: str) -> str:
    """The dotted name that ``from ... import`` means in ``package``."""
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    base = parts[: len(parts) - node.level + 1]
    return ".".join([*base, node.module] if node.module else base)
