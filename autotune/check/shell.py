"""Finds launches in shell text: one line, or a script with variables, comments and continued lines.

The text is cut into words as a POSIX shell would (quotation marks, backslashes, comments), every word with
its line, and the words into commands at ``;``, ``&``, ``|``, parentheses and line ends. Assignments are remembered:
``A=b`` alone fills in ``$A`` later, ``export A=b`` and ``A=b command`` are the command's environment. What a
shell would have to compute (``$(...)``, ``$((...))``, an unknown ``$NAME``) stays as it is, and its word is
marked as not whole.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from autotune.check.docker import DockerRun, split_docker_run
from autotune.check.launch import Launch, Word, find_launch, in_image, is_vllm_image

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.S)
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)(?::?[-=]([^}]*))?\}|([A-Za-z_]\w*))")
_TOKEN = re.compile(
    r"""
      (?P<blank>[ \t\r]+|\\\r?\n)
    | (?P<comment>(?<![^\s;&|()])\#[^\n]*)
    | (?P<redirection>(?:\d*(?:>>|>\||>|<<<|<<-?|<(?![\w ./-]+>))|&>>?)(?:&[\d-]|[ \t]*[^\s;&|()<>]+))
    | (?P<end>[;&|()\n]+)
    | (?P<word>(?: \\. | '[^']*' | "(?:\\.|[^"\\])*" | \$\((?:[^()]|\([^()]*\))*\) | <[\w ./-]+> | [^\s;&|()'"\\<>] )+)
    | (?P<odd>.)
    """,
    re.X | re.S,
)
_PART = re.compile(r"""\\(?P<escaped>.)|'(?P<single>[^']*)'|"(?P<double>(?:\\.|[^"\\])*)"|(?P<plain>[^\\'"]+)""", re.S)
_SHELLS = ("sh", "bash", "zsh", "dash")
# Words that set variables, and whether these go into the environment.
_DECLARING = {"export": True, "local": False, "readonly": False, "declare": False}


@dataclass
class _Script:
    """The variables that are set so far."""

    values: dict[str, Word] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)

    def environment(self) -> list[tuple[str, Word]]:
        return [(name, word) for name, word in self.values.items() if name in self.exported]


def launches_in_shell(text: str, line: int = 1, values: Mapping[str, Word] | None = None) -> list[Launch]:
    """Every launch in a shell text whose first line is ``line`` of its file; ``values`` are set before it."""
    script = _Script(dict(values or {}))
    found: list[Launch] = []
    for command in _commands(text, line):
        raw, at = command[0]
        if found and raw.startswith("--") and found[-1].cut_off is None:
            found[-1] = replace(found[-1], cut_off=Word(raw, at))
        found += _launches(script, command)
    return found


def split_words(text: str, line: int = 1, values: Mapping[str, Word] | None = None) -> list[Word]:
    """The words of a text that is one command, as in ``ExecStart=`` or compose's ``command``."""
    script = _Script(dict(values or {}))
    return [_word(script, match["word"], at) for match, at in _tokens(text, line) if match["word"]]


def fill(text: str, line: int, values: Mapping[str, Word] | None = None) -> Word:
    """One word that needs no splitting, with the variables that are known."""
    filled, whole = _filled(_Script(dict(values or {})), text)
    return Word(filled, line, whole)


def _tokens(text: str, line: int) -> Iterator[tuple[re.Match[str], int]]:
    for match in _TOKEN.finditer(text):
        yield match, line
        line += match.group().count("\n")


def _commands(text: str, line: int) -> Iterator[list[tuple[str, int]]]:
    """Raw words of one command after the other."""
    command: list[tuple[str, int]] = []
    for match, at in _tokens(text, line):
        if match["word"]:
            command.append((match["word"], at))
        elif match["end"] and command:
            yield command
            command = []
    if command:
        yield command


def _launches(script: _Script, command: list[tuple[str, int]]) -> list[Launch]:
    """Launches of one command; assignments are taken into ``script``."""
    if command[0][0] in _DECLARING:
        _declare(script, command[1:], exported=_DECLARING[command[0][0]])
        return []
    own: dict[str, Word] = {}
    for place, (raw, line) in enumerate(command):
        match = _ASSIGNMENT.fullmatch(raw)
        if match is None:
            words = [_word(script, raw, line) for raw, line in command[place:]]
            around = {**dict(script.environment()), **own}
            found = launches_in_command(words)
            return [launch if launch.image else launch.with_env(around.items()) for launch in found]
        own[match[1]] = _word(script, match[2], line)
    script.values |= own
    return []


def _declare(script: _Script, words: list[tuple[str, int]], exported: bool) -> None:
    """Take in ``export A=b`` and its kin."""
    for raw, line in words:
        name, has_value, value = raw.partition("=")
        if has_value:
            script.values[name] = _word(script, value, line)
        if exported:
            script.exported.add(name)


def launches_in_command(words: list[Word], values: Mapping[str, Word] | None = None) -> list[Launch]:
    """Launches in one command: its own, one in a container, or those in the text given to ``sh -c``.

    ``values`` are the variables that such a text may use.
    """
    for place, word in enumerate(words[:-1]):
        name = word.text.rsplit("/", 1)[-1]
        if name in _SHELLS and (inner := _inline(words[place + 1 :])):
            return launches_in_shell(inner.text, inner.line, values)
        if name in ("docker", "podman", "nerdctl") and (run := split_docker_run(words[place + 1 :])):
            return _in_container(run)
    found = find_launch(words)
    return [found.with_env(_env_command(words))] if found else []


def _in_container(run: DockerRun) -> list[Launch]:
    start = split_words(run.entrypoint.text, run.entrypoint.line) if run.entrypoint else []
    found = launches_in_command([*start, *run.words])
    if not found and not start and is_vllm_image(run.image.text):
        found = [in_image(run.image.text, run.words, run.image.line)]
    return [replace(launch, image=run.image.text, gpus=run.gpus).with_env(run.env) for launch in found]


def _inline(words: list[Word]) -> Word | None:
    """The text behind ``-c`` (also ``-lc``, ``-ec``)."""
    for place, word in enumerate(words[:-1]):
        if re.fullmatch(r"-[a-z]*c", word.text):
            return words[place + 1]
        if not word.text.startswith("-"):
            return None
    return None


def _env_command(words: list[Word]) -> list[tuple[str, Word]]:
    """Variables of ``env A=b vllm serve``; assignments behind the launch are none."""
    found = []
    for word in words:
        if word.text.rsplit("/", 1)[-1] in ("vllm", "python", "python3"):
            break
        if match := _ASSIGNMENT.fullmatch(word.text):
            found.append((match[1], Word(match[2], word.line, word.whole)))
    return found


def _word(script: _Script, raw: str, line: int) -> Word:
    """A raw word without quotation marks, and with the variables that the script has set."""
    text, whole = "", True
    for part in _PART.finditer(raw):
        if part["escaped"] is not None:
            text += "" if part["escaped"] == "\n" else part["escaped"]
        elif part["single"] is not None:
            text += part["single"]
        else:
            plain = part["plain"]
            filled, known = _filled(script, _unescaped(part["double"]) if plain is None else plain)
            # "<ip>" outside quotation marks is a gap that the reader is to fill.
            text, whole = text + filled, whole and known and "<" not in (plain or "")
    return Word(text, line, whole)


def _unescaped(text: str) -> str:
    """Inside double quotation marks a backslash quotes only a few characters."""
    return re.sub(r'\\([\\"$`\n])', lambda match: "" if match[1] == "\n" else match[1], text)


def _filled(script: _Script, text: str) -> tuple[str, bool]:
    """The text with known variables in place, and whether nothing unknown is left."""
    whole = "$(" not in text and "`" not in text and not re.search(r"\$[\d@*#?$!]", text)

    def value(match: re.Match[str]) -> str:
        nonlocal whole
        name = match[1] or match[3]
        known = script.values.get(name)
        if known is not None:
            whole = whole and known.whole
            return known.text
        if match[2] is not None:
            return match[2]
        whole = False
        return match.group()

    return _VARIABLE.sub(value, text), whole
