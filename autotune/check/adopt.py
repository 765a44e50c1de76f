"""A launch as a configuration to measure: for one vLLM, without what says where it listens and what it serves.

Options that went are carried over where that keeps their meaning: one whose work vLLM does by itself now is left
out, one with a successor becomes it, both with a note. Whatever this vLLM would refuse, and every value that only
a running shell would know, is an error: measuring something else under the launch's name would be worse.
"""

import json
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from autotune.check.arguments import Arguments, Setting, read_arguments
from autotune.check.case import Case, Finding
from autotune.check.launch import Launch, Word
from autotune.check.rules import flags, values
from autotune.check.rules.environment import secret_texts
from autotune.check.rules.flags import renames, replacement
from autotune.engine.environment import OUR_FLAGS, STRIPPED
from autotune.engine.flags import FlagTable, number_of
from autotune.engine.releases import Releases
from autotune.engine.vocabulary import Vocabulary
from autotune.errors import UsageError
from autotune.space.config import FlagValue, LaunchConfig

# Where it listens, whom it lets in, what it is called, and what it serves: the study has its own.
LEFT_OUT = frozenset(
    {*OUR_FLAGS, "model", "model-tag", "revision", "tokenizer", "tokenizer-revision", "code-revision", "hf-token"}
    | {"hf-config-path", "download-dir", "chat-template", "lora-modules", "middleware", "log-config-file"}
    | {"allowed-origins", "allowed-methods", "allowed-headers", "allow-credentials", "ssl-cert-reqs", "config"}
)
# Would hide from a study what it reads.
_BLINDS = {"disable-log-stats": "the study reads the engine's own counters"}
_VARIABLES = ("VLLM_", "NCCL_", "TORCH", "PYTORCH_", "TRITON_", "FLASHINFER_", "OMP_", "KMP_", "MALLOC_", "LD_PRELOAD")
_OUR_VARIABLES = {*STRIPPED, "VLLM_CACHE_ROOT", "VLLM_HOST_IP", "VLLM_SERVER_DEV_MODE", "VLLM_NO_USAGE_STATS"}
_ALONE = ("bool", "switch", "optional")


@dataclass(frozen=True, slots=True)
class Adopted:
    """The configuration, what was changed on the way, and the model and ``--config`` file that the launch names."""

    config: LaunchConfig
    notes: tuple[str, ...] = ()
    model: str = ""
    config_file: str = ""


def adopt(launch: Launch, table: FlagTable, vocabulary: Vocabulary, releases: Releases) -> Adopted:
    """The launch's configuration for the vLLM of ``table``. Raises ``UsageError`` where it has no such meaning."""
    options = {word.text.split("=")[0].replace("_", "-") for word in launch.words}
    arguments = read_arguments(launch, table, releases.ever(options))
    kept = tuple(s for s in arguments.settings if s.name not in LEFT_OUT and s.name not in _BLINDS)
    case = Case(launch, replace(arguments, settings=kept), table, vocabulary, releases)
    carried = [(s, new) for s in kept if s.status in ("unknown", "ambiguous") and (new := _carried(case, s))]
    gone = {id(setting) for setting, _ in carried}
    case = replace(case, arguments=replace(arguments, settings=tuple(s for s in kept if id(s) not in gone)))
    _refuse(case)
    found = [new for _, new in carried]
    env, from_env = _environment(case)
    moved = {name: value for new in (*found, *from_env) for name, value in new.flags}
    blind = [f"--{s.name} was left out: {_BLINDS[s.name]}" for s in arguments.settings if s.name in _BLINDS]
    return Adopted(
        LaunchConfig.of({**moved, **_flags(case.arguments)}, env),
        (*(new.note for new in (*found, *from_env)), *blind),
        arguments.model.text if arguments.model and arguments.model.whole else "",
        str(arguments.value("config") or ""),
    )


@dataclass(frozen=True, slots=True)
class _New:
    """What became of something that went."""

    note: str
    flags: tuple[tuple[str, FlagValue], ...] = ()


def _carried(case: Case, setting: Setting) -> _New | None:
    """What takes the place of an option that this vLLM no longer has; None where nothing does."""
    entry = renames()["flags"].get(setting.word.replace("_", "-"))
    if entry is None or case.releases.flag_lifetime(setting.word.replace("_", "-")) is None or not setting.known:
        return None
    return _successor(case, setting.word, replacement(case, entry["instead"], setting.text))


def _successor(case: Case, what: str, text: str) -> _New | None:
    """From ``nothing: …`` or ``--flag value``; None where a person has to choose."""
    if text.startswith("nothing"):
        why = text.removeprefix("nothing").lstrip(" :;").replace("(", "").replace(")", "")
        why = why or f"{case.vllm} needs nothing in its place"
        return _New(f"{what} was left out ({why})")
    words = shlex.split(text) if "..." not in text and "{" not in text and "'" not in text else []
    if len(words) != 2 or not words[0].startswith("--") or "." in words[0]:
        return None
    name = words[0][2:]
    if case.table.get(name) is None or case.table.why_not(name, words[1]) is not None:
        return None
    if case.arguments.get(name) is not None:
        return _New(f"{what} was left out: --{name} stands beside it")
    number = number_of(words[1])
    value = words[1] if number is None else int(number) if number == int(number) else number
    return _New(f"{what} became --{name} {words[1]}", ((name, value),))


def _refuse(case: Case) -> None:
    """Raises ``UsageError`` for the first thing that this vLLM would refuse, or that is not known."""
    findings = [f for rule in (*flags.RULES, *values.RULES) for f in rule(case) if f.level == "error"]
    if findings:
        more = f" (and {len(findings) - 1} more, see `autotune check`)" if len(findings) > 1 else ""
        raise UsageError(_clean(case, findings[0]) + more)
    for setting in case.arguments.settings:
        if not setting.known:
            raise UsageError(f"{setting.word} {setting.text} is known only when the command runs. Write the value.")
        if setting.flag and setting.flag.kind == "list" and len(setting.values) > 1:
            raise UsageError(f"{setting.word} with {len(setting.values)} values cannot be tried yet. Leave it out.")


def _clean(case: Case, finding: Finding) -> str:
    text = f"{finding.what}{f' ({finding.why})' if finding.why else ''}. Instead: {finding.instead or 'leave it out'}"
    for secret in secret_texts(case):
        text = text.replace(secret, "***")
    return text.rstrip(".") + "."


def _flags(arguments: Arguments) -> dict[str, FlagValue]:
    """Values by full name; JSON and the keys that were given one by one are one value."""
    found: dict[str, FlagValue] = {}
    for setting in arguments.settings:
        if setting.flag is None:
            continue
        if setting.key:
            found[setting.flag.name] = _with_key(found.get(setting.flag.name), setting)
        else:
            alone = setting.flag.kind in _ALONE and not setting.values
            found[setting.flag.name] = not setting.negated if alone else setting.value
    return found


def _with_key(before: FlagValue | None, setting: Setting) -> str:
    whole: dict[str, Any] = json.loads(before) if isinstance(before, str) and before.startswith("{") else {}
    place = whole
    *path, last = setting.key.split(".")
    for part in path:
        place = place.setdefault(part, {})
    place[last] = _loose(setting.text)
    return json.dumps(whole)


def _loose(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _environment(case: Case) -> tuple[dict[str, str], list[_New]]:
    """Variables that an engine's speed may depend on, less ours, secrets, and those that this vLLM does not read."""
    env: dict[str, str] = {}
    moved: list[_New] = []
    for name, word in _variables(case.launch.env):
        if not word.whole:
            raise UsageError(f"{name}={word.text} is known only when the command runs. Write the value.")
        if word.text in secret_texts(case):
            continue
        if name.startswith("VLLM_") and case.table.known_env and name not in case.table.known_env:
            text = replacement(case, renames()["env"].get(name, []), word.text)
            new = _successor(case, name, text) if text else None
            moved.append(new or _New(f"{name} was left out: {case.vllm} does not read it"))
        else:
            env[name] = word.text
    return env, moved


def _variables(env: Iterable[tuple[str, Word]]) -> Iterator[tuple[str, Word]]:
    yield from ((n, w) for n, w in env if n.startswith(_VARIABLES) and n not in _OUR_VARIABLES and "API_KEY" not in n)


_NAMED = re.compile(r"(?P<name>\w[\w .+-]*)=(?P<launch>.+)", re.S)
_STARTERS = {"vllm", "python", "python3", "docker", "podman", "nerdctl", "env", "exec", "uv", "sudo", "nohup"}


def split_name(text: str, is_file: bool) -> tuple[str, str]:
    """``NAME=vllm serve …`` or ``NAME=FILE`` as (name, launch); the name is empty where there is none.

    ``is_file`` says that what stands behind the ``=`` is a file. ``VAR=value vllm serve …`` has no name.
    """
    match = _NAMED.fullmatch(text.strip())
    if match is None:
        return "", text
    start = match["launch"].split(maxsplit=1)[0].rsplit("/", 1)[-1] if match["launch"].strip() else ""
    named = is_file or start in _STARTERS
    return (match["name"], match["launch"]) if named else ("", text)
