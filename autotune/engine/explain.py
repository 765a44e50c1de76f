"""Tells a person, or a program, what a vLLM log says: the failure with its evidence, or the facts of a good boot."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from autotune.engine.failure_classes import Consequence
from autotune.engine.failures import Diagnosis, Failure
from autotune.engine.logs import GIB, BootFacts
from autotune.engine.margins import Margin, MarginTokens

_CONSEQUENCES = {
    Consequence.TEACHES: "The configuration is at fault: a study learns from it and does not try it again.",
    Consequence.PRUNES_VALUE: "The value cannot work here: a study does not try it again.",
    Consequence.RETRY_ONCE: "The machine is at fault: a study learns nothing from it, cleans up and tries once more.",
    Consequence.STOPS_STUDY: "Nothing can work before it is mended: a study stops here.",
    Consequence.NONE: "No failure.",
}
_HIDDEN = frozenset({"phase", "ready", "phases_s", "non_default_args"})


def as_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """The diagnosis in plain values. ``class`` is null, and ``failure`` false, where nothing failed.

    A stop on request has the class ``stopped_by_us`` and is no failure either. Sizes are in bytes.
    """
    failure = diagnosis.failure
    answer: dict[str, Any] = {
        "class": None,
        "failure": False,
        "phase": diagnosis.facts.phase.value,
        "teaches": False,
        "consequence": Consequence.NONE.value,
        "line": None,
        "line_number": None,
        "process": None,
        "margin": None,
        "exit_code": None,
        "summary": "No failure in this log",
        "what_to_do": None,
    }
    if failure:
        answer |= _failure_json(failure)
    return answer | {"facts": _facts_json(diagnosis.facts)}


def _failure_json(failure: Failure) -> dict[str, Any]:
    return {
        "class": failure.cls.name,
        "failure": failure.consequence is not Consequence.NONE,
        "phase": failure.phase.value if failure.phase else None,
        "teaches": failure.teaches,
        "consequence": failure.consequence.value,
        "line": failure.line,
        "line_number": failure.line_number,
        "process": failure.process,
        "margin": _margin_json(failure.margin),
        "exit_code": failure.exit_code,
        "summary": failure.cls.summary,
        "what_to_do": failure.advice,
    }


def _margin_json(margin: Margin | None) -> dict[str, Any] | None:
    if margin is None:
        return None
    unit = "tokens" if isinstance(margin, MarginTokens) else "bytes"
    return {"unit": unit, "needed": margin.needed, "available": margin.available, "shortfall": margin.shortfall}


def _facts_json(facts: BootFacts) -> dict[str, Any]:
    plain = {item.name: getattr(facts, item.name) for item in fields(facts)}
    return plain | {"phases_s": {phase.value: seconds for phase, seconds in facts.phases_s.items()}}


def as_text(diagnosis: Diagnosis) -> str:
    """The diagnosis for a terminal."""
    failure = diagnosis.failure
    if failure is None or failure.consequence is Consequence.NONE:
        return "\n".join([_headline_of_health(diagnosis), *_fact_lines(diagnosis.facts)])
    return "\n".join(_failure_lines(failure))


def _headline_of_health(diagnosis: Diagnosis) -> str:
    if diagnosis.failure:
        where = f" (line {diagnosis.failure.line_number})" if diagnosis.failure.line_number else ""
        return f"No failure: {_lower(diagnosis.failure.cls.summary)}{where}."
    reached = "the server is up" if diagnosis.facts.ready else f"the boot is in phase {diagnosis.facts.phase}"
    return f"No failure in this log: {reached}."


def _failure_lines(failure: Failure) -> Iterator[str]:
    yield f"{failure.cls.name}: {failure.cls.summary}."
    if failure.phase:
        yield f"  phase    {failure.phase}"
    if failure.line:
        process = f" {failure.process}" if failure.process else ""
        yield f"  cause    line {failure.line_number}{process}: {failure.line}"
    if failure.exit_code is not None:
        yield f"  exit     {failure.exit_code}"
    if failure.margin:
        yield f"  margin   {failure.margin}, short by {_shortfall(failure.margin)}"
    yield f"  to do    {failure.advice}."
    yield f"  study    {_CONSEQUENCES[failure.consequence]}"


def _shortfall(margin: Margin) -> str:
    if isinstance(margin, MarginTokens):
        return f"{margin.shortfall:,} tokens"
    return f"{margin.shortfall / GIB:.2f} GiB"


def _fact_lines(facts: BootFacts) -> Iterator[str]:
    for item in fields(facts):
        value = getattr(facts, item.name)
        if item.name not in _HIDDEN and value not in (None, ()):
            name, text = _readable(item.name, value)
            yield f"  {name:<24}{text}"
    for phase, seconds in facts.phases_s.items():
        yield f"  {'phase ' + phase:<24}{seconds:g} s"


def _readable(name: str, value: Any) -> tuple[str, str]:
    words = name.replace("_", " ")
    if name.endswith("_bytes"):
        sizes = value if isinstance(value, tuple) else (value,)
        return words.removesuffix(" bytes"), ", ".join(f"{size / GIB:.2f} GiB" for size in sizes)
    if name.endswith("_s"):
        return words.removesuffix(" s"), f"{value:g} s"
    return words, f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]
