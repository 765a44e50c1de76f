"""Names that a vLLM knows beside its flags: tool parsers, reasoning parsers and model architectures.

The command line takes any text for a parser and any checkpoint for a model; vLLM refuses them later. The
names stand in its sources as the keys of dicts (``_TOOL_PARSERS_TO_REGISTER``, ``_TEXT_GENERATION_MODELS``),
in versions before 0.11 as the arguments of ``@ToolParserManager.register_module``. Both are read from syntax
trees; nothing of vLLM runs. Names that a plugin brings are not seen.
"""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from autotune.engine.vllm_source import literal

_MODELS = "model_executor/models/registry.py"
# Dicts of that file which name models that this version does not run by itself.
_NOT_MODELS = ("ROCM", "PREVIOUSLY", "OOT", "VLLM")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Sorted names. An empty tuple means that they could not be read, not that there are none."""

    tool_parsers: tuple[str, ...] = ()
    reasoning_parsers: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()


def read_vocabulary(package_dir: Path) -> Vocabulary:
    """The names that the vLLM in ``package_dir`` knows."""
    return Vocabulary(
        _parsers(package_dir, "tool_parsers", "ToolParserManager"),
        _parsers(package_dir, "reasoning*", "ReasoningParserManager"),
        _architectures(package_dir / _MODELS),
    )


def _parsers(package_dir: Path, folder: str, manager: str) -> tuple[str, ...]:
    found: set[str] = set()
    for parent in (package_dir, package_dir / "entrypoints/openai"):
        for path in sorted(parent.glob(f"{folder}/*.py")):
            found |= set(_registered(path, manager))
    return tuple(sorted(found))


def _registered(path: Path, manager: str) -> Iterator[str]:
    """Names of a dict ``..._PARSERS_TO_REGISTER``, and those given to ``manager.register_module``."""
    for node in _nodes(path):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).endswith("_PARSERS_TO_REGISTER"):
            yield from _keys(node.value)
        elif isinstance(node, ast.ClassDef):
            for call in node.decorator_list:
                if isinstance(call, ast.Call) and ast.unparse(call.func) == f"{manager}.register_module":
                    yield from _names([*call.args, *(keyword.value for keyword in call.keywords)])


def _architectures(path: Path) -> tuple[str, ...]:
    found: set[str] = set()
    for node in _nodes(path):
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        name = target.id if isinstance(target, ast.Name) else ""
        if name.endswith("_MODELS") and not any(word in name for word in _NOT_MODELS):
            found |= set(_keys(getattr(node, "value", None)))
    return tuple(sorted(found))


def _nodes(path: Path) -> Iterable[ast.stmt]:
    try:
        return ast.parse(path.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return ()


def _keys(node: ast.expr | None) -> Iterator[str]:
    if isinstance(node, ast.Dict):
        yield from (text for key in node.keys if isinstance(text := literal(key), str))


def _names(nodes: Iterable[ast.expr]) -> Iterator[str]:
    for node in nodes:
        value = literal(node)
        values = value if isinstance(value, list | tuple) else [value]
        yield from (text for text in values if isinstance(text, str))
