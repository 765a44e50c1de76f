"""Turns what pydantic says about a space file into one line: file, line, value, what was expected."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError

from autotune.errors import UsageError
from autotune.space.schema import Fixed, Match, ModelCondition, ParameterEntry, Seed, SpaceFile, ValueEntry, When
from autotune.space.yaml_lines import Document, Place

_CHOICE = "a number, a text, true, false or default"
_EXPECTED = {
    "bool_type": "true or false",
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "string_type": "a text (in quotation marks, if it looks like a number)",
    "too_short": "at least one item",
}


def suggestion(word: str, known: Mapping[str, Any] | list[str]) -> str:
    """``; did you mean 'x'?`` where a known word is near, the known words where there are few, else nothing."""
    near = get_close_matches(word.lower().replace("_", "-"), [k.replace("_", "-") for k in known], 1, 0.6)
    if near:
        return f"; did you mean {next(k for k in known if k.replace('_', '-') == near[0])!r}?"
    return f"; expected one of: {', '.join(known)}" if len(known) <= 20 else ""


def as_usage_error(error: ValidationError, document: Document) -> UsageError:
    """The first mistake in the file's order."""
    found = [(document.line(place), place, item) for item in error.errors() for place in [_place(document, item)]]
    line, place, item = min(found, key=lambda entry: entry[0])
    return UsageError(f"{document.path}:{line}: {_said(document, place, item)}")


def _place(document: Document, item: Any) -> Place:
    """The part of pydantic's path that exists in the file: short forms have no ``values`` and ``value``."""
    here: Any = document.content
    place: list[str | int] = []
    for step in item["loc"]:
        inside = isinstance(here, dict) and step in here
        inside = inside or (isinstance(here, list) and isinstance(step, int) and step < len(here))
        if inside:
            here = here[step]
            place.append(step)
    return tuple(place)


def _said(document: Document, place: Place, item: Any) -> str:
    kind, where = item["type"], _shown(place)
    if kind == "extra_forbidden":
        parent = place[:-1]
        model = _model_at(parent)
        section = _shown(parent) or "the file"
        return f"unknown key {str(place[-1])!r} in {section}{suggestion(str(place[-1]), _keys(model))}"
    if kind == "missing":
        return f"{where or 'the file'} has no key {str(item['loc'][-1])!r}"
    if kind == "value_error" and str(item["ctx"]["error"]).startswith("cannot"):
        return f"{where} {item['ctx']['error']}"
    prefix = f"{where}: " if where else ""
    if kind == "value_error":
        return prefix + str(item["ctx"]["error"]) + _found(item["input"], kind)
    return f"{prefix}expected {_expected(item)}{_found(item['input'], kind)}"


def _expected(item: Any) -> str:
    if item["type"] == "literal_error":
        return str(item["ctx"]["expected"])
    if item["loc"][-1] in ("bool", "int", "float", "str"):
        return "a number" if item["loc"][-2] in ("low", "high", "step") else _CHOICE
    return _EXPECTED.get(item["type"], str(item["msg"]))


def _found(value: Any, kind: str) -> str:
    if kind == "value_error" and not isinstance(value, str | int | float):
        return ""
    text = repr(value)
    return f", found {text if len(text) <= 60 else text[:57] + '...'}"


def _shown(place: Place) -> str:
    words = place[1:] if place[:1] == ("parameters",) and len(place) > 1 else place
    return ".".join(str(word + 1) if isinstance(word, int) else word for word in words)


def _keys(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _model_at(place: Place) -> type[BaseModel]:
    """The model that describes the mapping at a path."""
    if not place:
        return SpaceFile
    by_word: dict[str, type[BaseModel]] = {"when": When, "model": ModelCondition, "fixed": Fixed, "match": Match}
    last = place[-1]
    if isinstance(last, str) and last in by_word:
        return by_word[last]
    if place[0] == "seeds":
        return Seed
    return ParameterEntry if len(place) == 2 else ValueEntry
