"""Variables that this vLLM does not read, and secrets that anyone can read."""

import difflib
import re
from collections.abc import Iterator

from packaging.version import Version

from autotune.check.case import WHEELS, Case, Finding
from autotune.check.launch import Word
from autotune.check.rules.flags import renames, replacement

_SECRET_FLAG = re.compile(r"(^|-)(api-?key|hf-token|password|secret)s?($|-)")
_SECRET_VARIABLE = re.compile(r"(API_KEY|TOKEN|SECRET|PASSWORD)S?$")
_NOT_SECRET = re.compile(r"(|EMPTY|none|null|true|false|\d{1,4}|/.*)", re.I)


def unknown_variables(case: Case) -> Iterator[Finding]:
    """vLLM only warns about them, in a line that scrolls by."""
    known = case.table.known_env
    fatal = case.arguments.get("fail-on-environ-validation") is not None
    for name, word in case.launch.env:
        if not name.startswith("VLLM_") or name in known or not known:
            continue
        life = case.releases.name_lifetime("env", name)
        if life and Version(life.first) > case.version:
            code, what, why = "env-too-new", f"{name} is newer than {case.vllm}", f"it {life.came}"
        elif life:
            code, what, why = "env-removed", f"{case.vllm} no longer reads {name}", life.went
        else:
            code, what, why = "env-unknown", f"{case.vllm} does not know {name}", "no version since 0.6.3 did"
        near = difflib.get_close_matches(name, known, 1, 0.8)
        instead = replacement(case, renames()["env"].get(name, []), word.text if word.whole else "")
        yield Finding(
            level="error" if fatal else "warning",
            code=code,
            what=what,
            why=f"{why}; --fail-on-environ-validation makes it fatal" if fatal else f"{why}; it is ignored",
            instead=instead or (near[0] if near else "leave it out"),
            source=WHEELS,
            line=word.line,
        )


def secrets(case: Case) -> Iterator[Finding]:
    """A key in a command line stands in the process list and in the shell's history. Its text is never shown."""
    for setting in case.arguments.settings:
        if _SECRET_FLAG.search(_plain(setting.name)) and any(_is_secret(word) for word in setting.values):
            variable = "VLLM_API_KEY" if "key" in setting.name else "HF_TOKEN"
            yield Finding(
                level="warning",
                code="secret-in-command",
                what=f"{setting.word} is followed by a secret in plain text",
                why="every user of the machine sees it in the process list, and it stays in histories and logs",
                instead=f"set {variable} from a file or a secret store",
                line=setting.line,
            )
    for name, word in case.launch.env:
        if _SECRET_VARIABLE.search(name) and _is_secret(word):
            yield Finding(
                level="warning",
                code="secret-in-file",
                what=f"{name} holds a secret in plain text",
                why="whoever reads this file or command has it",
                instead="read it from a file or a secret store (EnvironmentFile=, secretKeyRef, env_file)",
                line=word.line,
            )


def secret_texts(case: Case) -> set[str]:
    """Texts that no finding may show."""
    behind_flags = (w for s in case.arguments.settings if _SECRET_FLAG.search(_plain(s.name)) for w in s.values)
    in_variables = (word for name, word in case.launch.env if _SECRET_VARIABLE.search(name))
    return {word.text for word in (*behind_flags, *in_variables) if _is_secret(word)}


def _plain(name: str) -> str:
    return name.replace("_", "-").lower()


def _is_secret(word: Word) -> bool:
    return word.whole and not _NOT_SECRET.fullmatch(word.text)


RULES = (unknown_variables, secrets)
