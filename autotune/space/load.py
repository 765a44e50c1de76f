"""Reads space files: follows ``extends``, merges, checks, and keeps lines for every complaint.

A parameter of the extending file is laid over the inherited one key by key, so it may state new values
only; ``omit`` takes an inherited parameter out. Rules and fixed flags are added to the inherited ones; its
seeds come before those, for they were written for this device. A person's file without ``extends`` holds
all parameters that are to be searched; from the space that fits the device (``base``) it takes only what
measuring needs there: fixed flags, rules, and whether a parameter is live, ordered or a matter of precision.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from autotune.errors import UsageError
from autotune.space.files import space_files
from autotune.space.problems import as_usage_error, suggestion
from autotune.space.schema import Fixed, Match, ParameterEntry, Seed, SpaceFile
from autotune.space.yaml_lines import Document, read_document

_FORMS = ("values", "low", "high", "step", "log2")
_TRAITS = ("scope", "ordered", "precision")


def load_space(path: Path, base: SpaceFile | None = None) -> SpaceFile:
    """One space file, complete.

    ``base`` is the shipped space for the device, used as described above. Raises ``UsageError`` that names
    file, line, value and what was expected.
    """
    return _load(path, base, ())


def load_shipped(name: str) -> SpaceFile:
    """A shipped space by name. Raises ``UsageError`` with the nearest name."""
    files = space_files()
    if name not in files:
        raise UsageError(f"no search space {name!r}{suggestion(name, list(files))}")
    return _load(files[name], None, ())


def read_match(path: Path) -> Match | None:
    """Only the devices that a file was written for: quicker than the whole file."""
    section = read_document(path).content.get("match")
    return None if section is None else Match.model_validate(section)


def _load(path: Path, base: SpaceFile | None, chain: tuple[Path, ...]) -> SpaceFile:
    document = read_document(path)
    parent = _parent(document, (*chain, path.resolve()))
    content = dict(document.content)
    own = content.get("parameters") or {}
    if not own and not parent:
        raise UsageError(f"{document.at(('parameters',))}: the file has no parameters to search")
    if isinstance(own, dict):
        content["parameters"] = _merged(own, parent, base)
    content.setdefault("name", path.stem)
    try:
        file = SpaceFile.model_validate(content)
    except ValidationError as error:
        raise as_usage_error(error, document) from error
    _check_names(file, document, parent or base)
    return _complete(file, document, parent, base)


def _parent(document: Document, chain: tuple[Path, ...]) -> SpaceFile | None:
    name = document.content.get("extends")
    if not isinstance(name, str):
        return None
    files = space_files()
    path = files.get(name, document.path.parent / name)
    where = document.at(("extends",))
    if path.resolve() in chain:
        raise UsageError(f"{where}: {name!r} extends itself")
    if not path.is_file():
        raise UsageError(f"{where}: no search space {name!r} to extend{suggestion(name, list(files))}")
    return _load(path, None, chain)


def _merged(own: dict[str, Any], parent: SpaceFile | None, base: SpaceFile | None) -> dict[str, Any]:
    if parent is None:
        return {name: _laid_over(_traits(name, base), entry) for name, entry in own.items()}
    inherited = {name: _raw(entry) for name, entry in parent.parameters.items()}
    changed = {name: _laid_over(inherited.get(name, {}), entry) for name, entry in own.items()}
    return {**inherited, **changed}


def _laid_over(old: Mapping[str, Any], new: Any) -> Any:
    new = {"values": new} if isinstance(new, list) else new
    if not isinstance(new, dict):
        return new
    kept = old if not any(key in new for key in _FORMS) else {k: v for k, v in old.items() if k not in _FORMS}
    return {**kept, **new}


def _raw(entry: ParameterEntry) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in entry.model_fields_set}


def _traits(name: str, base: SpaceFile | None) -> dict[str, Any]:
    known = base.parameters.get(name) if base else None
    return {key: getattr(known, key) for key in _TRAITS} if known else {}


def _complete(file: SpaceFile, document: Document, parent: SpaceFile | None, base: SpaceFile | None) -> SpaceFile:
    source = parent or base
    own = document.content.get("parameters") or {}
    omit = {**(parent.omit if parent else {}), **file.omit}
    kept = {name: entry for name, entry in file.parameters.items() if name not in file.omit}
    merged = file.model_copy(
        update={
            "parameters": kept,
            "omit": {name: why for name, why in omit.items() if name not in own},
            "rules": list(dict.fromkeys([*(source.rules if source else []), *file.rules])),
            "seeds": [*file.seeds, *(_other_seeds(parent, file) if parent else [])],
            "fixed": _fixed(source, file),
        }
    )
    if document.path.resolve() in {shipped.resolve() for shipped in space_files().values()}:
        return merged
    lines = {name: document.at(("parameters", name)) for name in own}
    return merged.with_origin({**(parent.origin if parent else {}), **lines})


def _other_seeds(parent: SpaceFile, file: SpaceFile) -> list[Seed]:
    """The inherited seeds that the file neither replaces nor makes impossible by an omission."""
    names = {seed.name for seed in file.seeds}
    return [s for s in parent.seeds if s.name not in names and not set(s.flags) & set(file.omit)]


def _fixed(source: SpaceFile | None, file: SpaceFile) -> Fixed:
    if source is None:
        return file.fixed
    return Fixed(flags={**source.fixed.flags, **file.fixed.flags}, env={**source.fixed.env, **file.fixed.env})


def _check_names(file: SpaceFile, document: Document, source: SpaceFile | None) -> None:
    """Every parameter that a condition, rule, seed or omission of the file speaks of must exist."""
    for name in file.omit:
        if name in (document.content.get("parameters") or {}):
            raise UsageError(f"{document.at(('omit', name))}: {name!r} is among the parameters as well")
    known = [*file.parameters, *file.fixed.flags, *file.omit]
    known += [*source.fixed.flags, *source.omit] if source else []
    for place, name in _mentions(file):
        if name not in known:
            raise UsageError(
                f"{document.at(place)}: {name!r} is not a parameter of this space{suggestion(name, known)}"
            )


def _mentions(file: SpaceFile) -> Iterable[tuple[tuple[str | int, ...], str]]:
    for name, entry in file.parameters.items():
        yield from ((("parameters", name, "when", "parameter", other), other) for other in entry.when.parameter)
        for index, value in enumerate(entry.values or []):
            place = ("parameters", name, "values", index, "when", "parameter")
            yield from (((*place, other), other) for other in value.when.parameter)
    for index, seed in enumerate(file.seeds):
        yield from ((("seeds", index, "flags", name), name) for name in seed.flags)
    for index, rule in enumerate(file.comparisons):
        yield from ((("rules", index), name) for name in rule.flags)
