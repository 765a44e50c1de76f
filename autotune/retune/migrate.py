"""A launch config of one vLLM version, written for another one, with every difference said in words.

    there under the same name            kept; a new default of a flag that is set does not matter
    an alias, or a known successor       renamed, its value moved into a JSON setting where the flag went into one
    gone with nothing to take its place  dropped: the engine does without it
    gone, and the successor differs      lost: nobody but a person can say what was meant
    the value is refused now             lost as well

What a flag was replaced by is known from the same data that ``autotune check`` uses. Nothing is started: the new
version's flags are read from its sources. What is dropped or lost may matter, and only a measurement tells.
"""

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from autotune.check.rules.flags import renames
from autotune.engine.flag_reader import Flag
from autotune.engine.flags import FlagTable
from autotune.space.config import FlagValue, LaunchConfig

Kind = Literal["renamed", "dropped", "lost"]
_PROSE = re.compile(r"^(?P<words>--\S+(?: '[^']*'| [^\s,(']+)?)(?P<rest>[,; (].*)?$")


@dataclass(frozen=True, slots=True)
class Change:
    """What became of one flag (or variable); ``text`` is a whole sentence for a person."""

    kind: Kind
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Migration:
    """The config for the new version and what had to change; ``same`` where nothing had to."""

    config: LaunchConfig
    changes: tuple[Change, ...] = ()

    @property
    def same(self) -> bool:
        """Whether the old launch means the same on the new version, word for word."""
        return not self.changes


def migrate(config: LaunchConfig, new: FlagTable) -> Migration:
    """``config`` as ``new`` takes it."""
    flags: dict[str, FlagValue] = {}
    changes: list[Change] = []
    for name, value in config.flags:
        _put(flags, changes, name, value, new)
    env = {}
    for name, text in config.env:
        if _variable_stays(name, new):
            env[name] = text
        else:
            _follow(flags, changes, name, text, new, _choices("env", name))
    return Migration(LaunchConfig.of(flags, env), tuple(changes))


def changed_meaning(names: Iterable[str], old: FlagTable, new: FlagTable) -> dict[str, str]:
    """Which of these flags do not mean the same on both versions, set or left alone, each with the reason."""
    found = {}
    for name in names:
        before, after = old.get(name), new.get(name)
        if before is None or after is None:
            found[name] = f"--{name} is not in both versions"
        elif before.kind != after.kind:
            found[name] = f"--{name} takes other values"
        elif before.default_known and after.default_known and before.default != after.default:
            found[name] = f"the default of --{name} was {before.default}, is {after.default}"
    return found


def _put(flags: dict[str, FlagValue], changes: list[Change], name: str, value: FlagValue, new: FlagTable) -> None:
    flag = new.get(name)
    if flag is None:
        resolved = new.resolve(f"--{name}")
        if resolved.status == "exact" and resolved.flag is not None and not resolved.negated:
            changes.append(Change("renamed", name, f"--{name} is --{resolved.flag.name} now."))
            flags[resolved.flag.name] = value
            return
        _follow(flags, changes, name, value, new, _choices("flags", f"--{name}"))
    elif why := new.why_not(name, value):
        changes.append(Change("lost", name, f"--{name} {value} is left out: {why}."))
    elif flag.kind == "json":
        _merge(flags, name, str(value))
    else:
        flags[name] = value


def _follow(
    flags: dict[str, FlagValue],
    changes: list[Change],
    name: str,
    value: FlagValue,
    new: FlagTable,
    choices: list[tuple[str | None, str]],
) -> None:
    """What is gone goes where its successor is, if there is one that says the same."""
    shown = name if name.isupper() else f"--{name}"
    text = next((text for needed, text in choices if needed is None or new.get(needed)), "")
    if text.startswith("nothing") or (value is False and not text):
        changes.append(Change("dropped", name, f"{shown} is gone; instead: {text or 'nothing'}."))
        return
    successor = _successor(text, value, new)
    if successor is None:
        advice = f" (instead: {text.replace('{value}', str(value))})" if text else ""
        changes.append(Change("lost", name, f"{shown} {value} is gone and was left out{advice}."))
        return
    target, new_value, flag = successor
    if flag.kind == "json":
        _merge(flags, target, str(new_value))
    else:
        flags.setdefault(target, new_value)
    changes.append(Change("renamed", name, f"{shown} {value} is --{target} {new_value} now."))


def _successor(text: str, value: FlagValue, new: FlagTable) -> tuple[str, FlagValue, Flag] | None:
    """Flag and value that ``text`` tells to write, where it is no more than that and this version takes it."""
    match = _PROSE.match(text.replace("{value}", json.dumps(value) if isinstance(value, bool) else str(value)))
    if match is None or "..." in match["words"]:
        return None
    word, *rest = shlex.split(match["words"])
    name, _, key = word.removeprefix("--").partition(".")
    flag = new.get(name)
    if flag is None or (not rest and (flag.kind not in ("bool", "switch") or value is not True)):
        return None
    answer = _typed(rest[0], value) if rest else True
    if key:
        answer = json.dumps({key: answer})
    return None if new.why_not(name, answer) else (name, answer, flag)


def _typed(text: str, value: FlagValue) -> FlagValue:
    """The value itself where it was only passed on, else a number where the text is one."""
    if text == str(value):
        return value
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def _merge(flags: dict[str, FlagValue], name: str, text: str) -> None:
    """Lay one JSON setting over what is there already."""
    before, after = _object(flags.get(name)), _object(text)
    flags[name] = text if before is None or after is None else json.dumps({**before, **after})


def _object(text: FlagValue | None) -> dict[str, Any] | None:
    try:
        value = json.loads(str(text))
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _variable_stays(name: str, new: FlagTable) -> bool:
    """Variables that are not vLLM's own are nobody's to judge."""
    return not name.startswith("VLLM_") or not new.known_env or name in new.known_env


def _choices(kind: str, name: str) -> list[tuple[str | None, str]]:
    data: Mapping[str, Any] = renames()[kind]
    entry = data.get(name, [])
    found = entry["instead"] if isinstance(entry, dict) else entry
    return [(needed, text) for needed, text in found]
