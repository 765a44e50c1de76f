"""Options that this vLLM does not have, or that it has under another name."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from packaging.version import Version

from autotune.check.arguments import Setting
from autotune.check.case import WHEELS, Case, Finding

_FILE = Path(__file__).parents[1] / "renames.json"


@cache
def renames() -> Mapping[str, Any]:
    """What took the place of a flag or variable; ``[needed flag, text]`` pairs, best first."""
    data: Mapping[str, Any] = json.loads(_FILE.read_bytes())
    return data


def replacement(case: Case, choices: list[tuple[str | None, str]], value: str) -> str:
    """The first way that this vLLM offers."""
    for needed, text in choices:
        if needed is None or case.table.get(needed):
            return text.replace("{value}", value or "...")
    return ""


def unknown_flags(case: Case) -> Iterator[Finding]:
    """Options that are not there: removed, not there yet, or never."""
    for setting in case.arguments.settings:
        if setting.status != "unknown":
            continue
        life = case.releases.flag_lifetime(setting.word.replace("_", "-"))
        if life is None:
            yield _never(case, setting)
        elif Version(life.first) > case.version:
            yield Finding(
                level="error",
                code="flag-too-new",
                what=f"{setting.word} is newer than {case.vllm}",
                why=f"it {life.came}",
                instead=_instead(case, setting) or f"leave it out, or install vLLM {life.first} or newer",
                source=WHEELS,
                line=setting.line,
            )
        else:
            yield Finding(
                level="error",
                code="flag-removed",
                what=f"{case.vllm} no longer has {setting.word}"
                if life.after
                else f"{case.vllm} has no {setting.word}",
                why=life.went if life.after else "the published versions have it; this build does not",
                instead=_instead(case, setting) or "leave it out",
                source=WHEELS,
                line=setting.line,
            )


def _never(case: Case, setting: Setting) -> Finding:
    near = ", ".join(setting.candidates)
    return Finding(
        level="error",
        code="flag-unknown",
        what=f"{case.vllm} has no {setting.word}",
        why="no version since 0.6.3 had it; the parser stops with exit code 2",
        instead=_instead(case, setting) or (f"the nearest: {near}" if near else "leave it out"),
        source=WHEELS,
        line=setting.line,
    )


def _instead(case: Case, setting: Setting) -> str:
    entry = renames()["flags"].get(setting.word.replace("_", "-"))
    return replacement(case, entry["instead"], setting.text) if entry else ""


def ambiguous_flags(case: Case) -> Iterator[Finding]:
    """Beginnings of words that several options share; a flag that went can have become one."""
    for setting in case.arguments.settings:
        if setting.status != "ambiguous":
            continue
        life = case.releases.flag_lifetime(setting.word.replace("_", "-"))
        why = f"it could be {', '.join(setting.candidates)}"
        if life:
            why = f"the flag of that name is gone ({life.went}), and {why}"
        yield Finding(
            level="error",
            code="flag-ambiguous",
            what=f"{setting.word} is not clear to {case.vllm}",
            why=why,
            instead=_instead(case, setting) or "write the flag's full name",
            source=WHEELS,
            line=setting.line,
        )


def abbreviated_flags(case: Case) -> Iterator[Finding]:
    """Abbreviations work until a new flag begins with the same letters."""
    for setting in case.arguments.settings:
        if setting.status == "abbreviation" and setting.flag:
            full = f"--{'no-' if setting.negated else ''}{setting.flag.name}"
            yield Finding(
                level="warning",
                code="flag-abbreviated",
                what=f"{setting.word} is short for {full}",
                why="a later vLLM with another flag that begins so will refuse it",
                instead=full,
                line=setting.line,
            )


def deprecated_flags(case: Case) -> Iterator[Finding]:
    """Flags that this version still takes and says it will drop."""
    listed = renames()["deprecated"]
    for setting in case.arguments.settings:
        entry = listed.get(setting.name)
        noted = entry is not None and case.version >= Version(entry["since"])
        if setting.flag is None or not (setting.flag.deprecated or noted):
            continue
        life = case.releases.flag_lifetime(f"--{setting.flag.name}")
        yield Finding(
            level="warning",
            code="flag-deprecated",
            what=f"{case.vllm} takes {setting.word} and calls it deprecated",
            why=life.went if life and life.after else "a later version will refuse it",
            instead=(entry["instead"] if noted else _instead(case, setting)) or "leave it out",
            source=WHEELS,
            line=setting.line,
        )


def model_flag(case: Case) -> Iterator[Finding]:
    """``vllm serve --model X``: taken, and announced to go."""
    setting = case.arguments.get("model")
    if case.launch.kind != "serve" or setting is None:
        return
    positional = case.arguments.model
    if positional and positional.text and positional not in setting.values:
        what = f"the model is named twice: {positional.text}, and --model {setting.text}"
        yield Finding(
            level="error", code="model-twice", what=what, instead="name it once, right after serve", line=setting.line
        )
        return
    yield Finding(
        level="warning",
        code="model-flag",
        what="after `vllm serve` the model stands without --model",
        why="vLLM warns that the option will be removed"
        if case.version >= Version("0.9")
        else "vllm serve takes the model as its first argument",
        instead=f"vllm serve {setting.text}",
        source="vLLM's parser (argparse_utils)",
        line=setting.line,
    )


def missing_model(case: Case) -> Iterator[Finding]:
    """A served name without a model is refused; without either vLLM serves a small default model."""
    elsewhere = case.launch.kind in ("config", "fragment") or case.arguments.get("config")
    if case.arguments.model is not None or elsewhere:
        return
    named = case.arguments.get("served-model-name")
    yield Finding(
        level="error" if named else "warning",
        code="model-missing",
        what="no model is named",
        why="--served-model-name needs one" if named else "vLLM then serves its small default model",
        instead="vllm serve MODEL ...",
        line=case.launch.line,
    )


def repeated_flags(case: Case) -> Iterator[Finding]:
    """The last one counts; vLLM does not complain, or only in its log."""
    seen: dict[str, Setting] = {}
    for setting in case.arguments.settings:
        if setting.flag is None or setting.key or setting.flag.kind == "json":
            continue
        before = seen.get(setting.flag.name)
        if before and before.text != setting.text:
            yield Finding(
                level="warning",
                code="flag-repeated",
                what=f"{setting.word} is given twice: {before.text} (line {before.line}), then {setting.text}",
                why="the last one counts",
                instead="keep one",
                line=setting.line,
            )
        seen[setting.flag.name] = setting


def stray_words(case: Case) -> Iterator[Finding]:
    """Words that belong to no option."""
    for word in case.arguments.strays:
        yield Finding(
            level="error",
            code="argument-stray",
            what=f"{word.text!r} belongs to no option",
            why="a switch takes no value (it is --flag or --no-flag), and there is one model",
            instead="leave it out",
            line=word.line,
        )


def cut_off(case: Case) -> Iterator[Finding]:
    """A flag on a line of its own: the line before lacks its backslash, or a comment stands between."""
    if word := case.launch.cut_off:
        yield Finding(
            level="error",
            code="line-cut-off",
            what=f"{word.text} and what follows are not part of the command",
            why="the line before does not end with a backslash (nothing, no blank and no comment, may follow it)",
            instead="end every line but the last with a backslash",
            line=word.line,
        )


RULES = (
    unknown_flags,
    ambiguous_flags,
    abbreviated_flags,
    deprecated_flags,
    model_flag,
    missing_model,
    repeated_flags,
    stray_words,
    cut_off,
)
