"""From vLLM's sources to its list of flags.

vLLM builds its command line in two ways, and both are read here:

1. ``EngineArgs.add_cli_args`` (and its async twin, and ``make_arg_parser``) calls ``add_argument`` with the
   flag's words and, mostly, ``**kwargs`` made from one field of a config dataclass: the field's annotation
   gives type and choices, its value the default.
2. ``FrontendArgs`` makes one flag from each of its fields, ``some_field`` becoming ``--some-field``.

Statements between the calls amend those kwargs (another type, a choice removed); the ones that change what
is accepted are followed. The order in which an annotation decides the kind is vLLM's own: dataclass, bool,
Literal, sequence, int, float, dict, str.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from autotune.engine.vllm_source import UNSTATED, Binding, Module, SourceTree, literal
from autotune.engine.vllm_types import Hints, read_hints

Kind = Literal["bool", "switch", "optional", "int", "size", "size_or_auto", "float", "str", "json", "list"]

_FOLDERS = ("engine", "entrypoints")


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag of ``vllm serve``. ``name`` has no dashes in front; ``aliases`` are other words, with theirs.

    ``kind`` is what the parser makes of the value: ``bool`` has a ``--no-`` form, ``switch`` has not,
    ``optional`` may stand alone or take a value, ``size`` also takes 8k or 25G. ``choices`` are the values that
    the source names; with ``open_choices`` the parser passes others on, to be refused or found in a plugin
    later. ``default`` counts only where ``default_known``: many defaults are computed at start. ``bounds`` are
    the limits of a number, such as ``(("gt", 0), ("le", 1))``; vLLM looks at them after parsing. ``deprecated``:
    vLLM says so when the flag is used. ``keys`` are those of a JSON value that stands for a config class, ``items``
    the kind of a list's items.
    """

    name: str
    aliases: tuple[str, ...] = ()
    kind: Kind = "str"
    choices: tuple[str | int | float | None, ...] | None = None
    default: Any = None
    negatable: bool = False
    open_choices: bool = False
    default_known: bool = True
    bounds: tuple[tuple[str, float], ...] = ()
    deprecated: bool = False
    keys: tuple[str, ...] = ()
    items: Kind | None = None


@dataclass
class _Scope:
    """Names inside one function that stand for a config class's kwargs, or for one field's."""

    source: SourceTree
    module: Module
    sizes: Mapping[str, Kind]
    classes: dict[str, Binding] = field(default_factory=dict)
    fields: dict[str, tuple[str, str]] = field(default_factory=dict)
    specs: dict[tuple[str, str], Flag] = field(default_factory=dict)

    def spec(self, node: ast.expr) -> Flag | None:
        """The flag that ``kwargs["field"]``, or a name bound to it, describes."""
        key = self.key(node)
        if key is None or key[0] not in self.classes:
            return None
        if key not in self.specs:
            self.specs[key] = _from_field(self.source, self.classes[key[0]], key[1], self.sizes)
        return self.specs[key]

    def key(self, node: ast.expr) -> tuple[str, str] | None:
        """(kwargs name, field) of such an expression."""
        if isinstance(node, ast.Name):
            return self.fields.get(node.id)
        if isinstance(node, ast.Subscript) and isinstance(text := literal(node.slice), str):
            if isinstance(node.value, ast.Name):
                return (node.value.id, text)
            if owner := self.config_class(node.value):
                name = ast.unparse(node.value)
                self.classes[name] = owner
                return (name, text)
        return None

    def config_class(self, node: ast.expr) -> Binding | None:
        """The class of ``get_kwargs(SomeConfig)``."""
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "get_kwargs" and node.args:
            return self.source.follow(self.module, ast.unparse(node.args[0]))
        return None


def read_serve_flags(package_dir: Path) -> tuple[Flag, ...]:
    """Every flag of ``vllm serve``, sorted by name; empty where no such class is found."""
    source = SourceTree(package_dir)
    engine = source.find(ast.ClassDef, "EngineArgs", _FOLDERS)
    frontend = source.find(ast.ClassDef, "FrontendArgs", _FOLDERS)
    if engine is None:
        return ()
    sizes = _size_fields(engine.module)
    found: dict[str, Flag] = {}
    for owner in (engine, engine.module.bindings.get("AsyncEngineArgs")):
        for function in _functions(owner, "add_cli_args"):
            found |= _added(source, engine.module, function, sizes)
    if frontend is not None:
        found |= _generated(source, frontend, sizes)
    # Before that class came, the function that makes the parser held the front end's flags itself.
    maker = (
        frontend.module.bindings.get("make_arg_parser")
        if frontend
        else source.find(ast.FunctionDef, "make_arg_parser", _FOLDERS)
    )
    if maker and isinstance(maker.node, ast.FunctionDef):
        found |= _added(source, maker.module, maker.node, sizes)
    return tuple(found[name] for name in sorted(found))


def read_known_env(package_dir: Path) -> tuple[str, ...]:
    """Names of the environment variables that ``envs.py`` defines, sorted."""
    module = SourceTree(package_dir).module(f"{package_dir.name}.envs")
    binding = module.bindings.get("environment_variables") if module else None
    table = binding.node.value if binding and isinstance(binding.node, ast.Assign | ast.AnnAssign) else None
    keys = table.keys if isinstance(table, ast.Dict) else []
    return tuple(sorted(text for key in keys if isinstance(text := literal(key), str)))


def reads_pairs(package_dir: Path) -> bool:
    """Whether this vLLM's parser takes ``--disable-x`` for ``--no-enable-x``, and the other way round."""
    files = (package_dir / "utils").glob("*argparse*.py")
    return any(b"class EnableDisableAction" in path.read_bytes() for path in files)


def _functions(owner: Binding | None, name: str | None = None) -> Iterator[ast.FunctionDef]:
    body = owner.node.body if owner and isinstance(owner.node, ast.ClassDef) else []
    yield from (node for node in body if isinstance(node, ast.FunctionDef) and name in (None, node.name))


def _size_fields(module: Module) -> dict[str, Kind]:
    """Fields whose integers may be written like 8k, as the function that makes kwargs names them."""
    sizes: dict[str, Kind] = {}
    for name in ("_compute_kwargs", "get_kwargs"):
        binding = module.bindings.get(name)
        for node in ast.walk(binding.node) if binding else ():
            if isinstance(node, ast.Set):
                sizes |= dict.fromkeys(_strings(node), "size")
            elif isinstance(node, ast.If) and isinstance(node.test, ast.Compare):
                sizes |= dict.fromkeys(
                    _strings(node.test.comparators[0]), _kind_of_type(ast.unparse(node.body[0]), "int")
                )
    return {name: kind for name, kind in sizes.items() if kind in ("size", "size_or_auto")}


def _strings(node: ast.expr) -> list[str]:
    """The strings of a literal: one, or those of a tuple, list or set."""
    value = literal(node)
    values = value if isinstance(value, tuple | list | set) else [value]
    return [text for text in values if isinstance(text, str)]


def _added(source: SourceTree, module: Module, function: ast.FunctionDef, sizes: Mapping[str, Kind]) -> dict[str, Flag]:
    """Flags of the ``add_argument`` calls of one function, in the order of its statements."""
    scope = _Scope(source, module, sizes)
    found = {}
    nodes = (node for node in ast.walk(function) if isinstance(node, ast.Assign | ast.Call | ast.Delete))
    for node in sorted(nodes, key=lambda node: (node.lineno, node.col_offset)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            if flag := _from_call(scope, node):
                found[flag.name] = flag
        else:
            _follow_statement(scope, node)
    return found


def _follow_statement(scope: _Scope, node: ast.Assign | ast.Call | ast.Delete) -> None:
    """Take in ``kwargs = get_kwargs(C)``, ``one = kwargs["f"]`` and amendments of such kwargs."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        name = node.targets[0].id
        if owner := scope.config_class(node.value):
            scope.classes[name] = owner
        elif key := scope.key(node.value):
            scope.fields[name] = key
    else:
        for target, amended in _amendments(scope, node):
            scope.specs[target] = amended


def _amendments(scope: _Scope, node: ast.Assign | ast.Call | ast.Delete) -> Iterator[tuple[tuple[str, str], Flag]]:
    """The field and its new flag, where a statement changes one entry of a field's kwargs."""
    if isinstance(node, ast.Call):
        target = node.func.value if isinstance(node.func, ast.Attribute) and node.func.attr == "remove" else None
    else:
        target = node.targets[0]
    if not isinstance(target, ast.Subscript) or not (flag := scope.spec(target.value)):
        return
    key, entry = scope.key(target.value), literal(target.slice)
    if key is None:
        return
    if isinstance(node, ast.Call) and entry == "choices" and flag.choices:
        gone = scope.source.value(scope.module, node.args[0])
        yield key, replace(flag, choices=tuple(choice for choice in flag.choices if choice != gone))
    elif isinstance(node, ast.Assign) and isinstance(entry, str):
        yield key, _amended(scope, flag, entry, node.value)
    elif isinstance(node, ast.Delete) and entry == "nargs" and flag.kind == "list":
        yield key, replace(flag, kind="str")


def _from_call(scope: _Scope, call: ast.Call) -> Flag | None:
    """The flag of one ``add_argument`` call; None for positionals and for calls in a loop over fields."""
    words = [text for arg in call.args if isinstance(text := literal(arg), str) and text.startswith("-")]
    name = next((word[2:] for word in words if word.startswith("--")), None)
    if name is None:
        return None
    flag = Flag(name)
    for keyword in call.keywords:
        for entry, value in _entries(keyword):
            made = scope.spec(value) if entry is None else _amended(scope, flag, entry, value)
            flag = made or flag
    return replace(flag, name=name, aliases=tuple(word for word in words if word != f"--{name}"))


def _entries(keyword: ast.keyword) -> Iterator[tuple[str | None, ast.expr]]:
    """(entry, value) pairs of one keyword; ``**{**kwargs, "default": None}`` is taken apart."""
    if keyword.arg is None and isinstance(keyword.value, ast.Dict):
        for key, value in zip(keyword.value.keys, keyword.value.values, strict=True):
            yield (None if key is None else str(literal(key))), value
    else:
        yield keyword.arg, keyword.value


def _amended(scope: _Scope, flag: Flag, entry: str, value: ast.expr) -> Flag:
    """The flag after one entry of its kwargs is set to ``value``."""
    text = ast.unparse(value)
    if entry == "default":
        return _with_default(flag, scope.source.value(scope.module, value))
    if entry == "choices":
        choices = _choices(scope, value)
        return replace(flag, choices=choices, open_choices=False) if choices else flag
    if entry == "deprecated":
        return replace(flag, deprecated=literal(value) is True)
    if entry == "action" and "BooleanOptionalAction" in text:
        return replace(flag, kind="bool", negatable=True)
    if entry == "action" and "store_" in text:
        return replace(flag, kind="switch", default=False)
    if entry == "nargs" and (kind := _kind_of_count(literal(value), flag.kind)):
        return replace(flag, kind=kind)
    if entry == "type" and ("json.loads" in text or flag.kind not in ("list", "optional")):
        return replace(flag, kind=_kind_of_type(text, flag.kind))
    return flag


def _kind_of_type(text: str, before: Kind) -> Kind:
    """The kind that ``type=text`` makes; a function that we do not know leaves the kind as it was."""
    if "json.loads" in text:
        return "json"
    if "human_readable_int" in text:
        return "size_or_auto" if "_or_auto" in text else "size"
    known: dict[str, Kind] = {"int": "int", "float": "float", "str": "str"}
    return known.get(text, before)


def _kind_of_count(count: Any, before: Kind) -> Kind | None:
    """The kind that ``nargs=`` makes: a value that may be missing, or several values."""
    if count in ("*", "+"):
        return "list"
    return "optional" if count == "?" and before == "str" else None


def _choices(scope: _Scope, node: ast.expr) -> tuple[Any, ...]:
    """``choices=`` as a literal, as ``get_args(Alias)`` or as the values of an enum."""
    if isinstance(values := literal(node), list | tuple):
        return tuple(values)
    if isinstance(node, ast.List):
        items = [tuple(_listed(scope, item)) for item in node.elts]
        # A part that cannot be read would make every value of it look wrong.
        return tuple(value for values in items for value in values) if all(items) else ()
    if isinstance(node, ast.Call) and "get_args" in ast.unparse(node.func):
        return read_hints(scope.source, scope.module, node.args[0]).values
    if isinstance(node, ast.ListComp):
        return read_hints(scope.source, scope.module, node.generators[0].iter).values
    return ()


def _listed(scope: _Scope, item: ast.expr) -> Iterator[Any]:
    """One item of a list of choices; ``*NAMES`` stands for the items of a list or the keys of a dict."""
    if not isinstance(item, ast.Starred):
        yield from (value for value in (literal(item),) if value is not UNSTATED)
        return
    name = item.value.id if isinstance(item.value, ast.Name) else ""
    binding = scope.source.follow(scope.module, name)
    node = binding.node.value if binding and isinstance(binding.node, ast.Assign | ast.AnnAssign) else None
    if binding and isinstance(node, ast.Call):
        yield from (value for arg in node.args for value in _choices(replace(scope, module=binding.module), arg))
    names = node.keys if isinstance(node, ast.Dict) else node.elts if isinstance(node, ast.List) else []
    yield from (text for name in names if isinstance(text := literal(name), str))


def _generated(source: SourceTree, owner: Binding, sizes: Mapping[str, Kind]) -> dict[str, Flag]:
    """One flag per field of a class that makes its flags from its own fields."""
    scope = _Scope(source, owner.module, sizes)
    names = source.fields(owner)
    for ancestor in reversed(source.ancestry(owner)):
        for function in _functions(ancestor):
            variables = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
            scope.classes |= dict.fromkeys(variables, owner)
            for node in ast.walk(function):
                if isinstance(node, ast.Assign | ast.Delete):
                    _follow_amendment(scope, node, names)
    amended = {name: flag for (_, name), flag in scope.specs.items()}
    return {(flag := amended.get(name) or _from_field(source, owner, name, sizes)).name: flag for name in names}


def _follow_amendment(scope: _Scope, node: ast.Assign | ast.Delete, names: Iterable[str]) -> None:
    for (variable, name), flag in _amendments(scope, node):
        if name in names:
            scope.specs[variable, name] = flag


def _from_field(source: SourceTree, owner: Binding, name: str, sizes: Mapping[str, Kind]) -> Flag:
    """The flag that one dataclass field makes: kind and choices from its annotation, default from its value."""
    flag = Flag(name.replace("_", "-"), default_known=False)
    module, node = source.fields(owner).get(name, (None, None))
    if module is None or node is None:
        return flag
    hints = read_hints(source, module, node.annotation)
    typed = replace(_typed(flag, hints, sizes.get(name)), bounds=tuple(_bounds(node.value)))
    return _with_default(typed, source.value(module, node.value))


def _bounds(node: ast.expr | None) -> Iterator[tuple[str, float]]:
    """The limits in ``Field(gt=0, le=1)``."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "Field":
        for keyword in node.keywords:
            limit = literal(keyword.value)
            if keyword.arg in ("gt", "ge", "lt", "le") and isinstance(limit, int | float):
                yield keyword.arg, limit


def _with_default(flag: Flag, value: Any) -> Flag:
    if value is UNSTATED:
        return replace(flag, default=None, default_known=False)
    return replace(flag, default=sorted(value) if isinstance(value, set) else value, default_known=True)


def _typed(flag: Flag, hints: Hints, size: Kind | None) -> Flag:
    """Apply an annotation; the first rule that matches decides, in vLLM's order."""
    names = hints.names
    if "dataclass" in names:
        return replace(flag, kind="json", keys=hints.fields)
    if names == {"bool", "str", "None"}:
        return replace(flag, kind="optional")
    if "bool" in names:
        return replace(flag, kind="bool", negatable=True)
    if hints.values:
        is_open = hints.open or "str" in names
        kind: Kind = "int" if all(isinstance(value, int) for value in hints.values) else "str"
        return replace(flag, kind=kind, choices=hints.values, open_choices=is_open)
    if names & {"list", "tuple", "set"}:
        element = hints.element or Hints()
        items: Kind | None = "int" if element.names == {"int"} else None
        return replace(flag, kind="list", choices=element.values or None, open_choices=element.open, items=items)
    if "int" in names:
        return replace(flag, kind=size or "int")
    kinds: dict[str, Kind] = {"float": "float", "dict": "json"}
    return replace(flag, kind=next((kinds[name] for name in kinds if name in names), "str"))
