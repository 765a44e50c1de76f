"""From what a person gives to the launches in it: a shell line, or a file of whatever kind it proves to be."""

import re
from pathlib import Path

import yaml

from autotune.check.launch import Launch
from autotune.check.manifests import launches_in_yaml
from autotune.check.shell import launches_in_shell
from autotune.check.systemd import is_unit, launches_in_unit
from autotune.errors import UsageError

_WANTED = (
    "Give a `vllm serve ...` line in quotation marks, or a file: shell script, vLLM YAML, systemd unit, compose "
    "or Kubernetes YAML."
)
_MAX_BYTES = 4 << 20
_HERE_DOCUMENT = re.compile(
    r"""(?P<head><<-?[ \t]*['"]?(?P<end>\w+)['"]?[^\n]*\n)(?P<body>.*?^)[ \t]*(?P=end)[ \t]*$""", re.M | re.S
)


def read_launches(target: str, stdin: str | None = None) -> tuple[str | None, list[Launch]]:
    """The file's name (None for a line) and its launches; ``-`` reads ``stdin``.

    Raises ``UsageError`` where the target can't be read or starts no vLLM.
    """
    path = None if target == "-" or "\n" in target else Path(target).expanduser()
    if target == "-":
        found, name = _of_text(stdin or "", ""), "-"
    elif path is not None and _is_file(path):
        found, name = _of_text(_content(path), path.suffix), str(path)
    elif re.search(r"\s", target):
        found, name = launches_in_shell(target), None
    else:
        raise UsageError(f"{target}: no such file. {_WANTED}")
    if not found:
        raise UsageError(f"{name or 'this line'} starts no vLLM server. {_WANTED}")
    return name, found


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a command line can be longer than a file's name may be
        return False


def _content(path: Path) -> str:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise UsageError(f"{path} is larger than {_MAX_BYTES >> 20} MiB: this is no launch file. {_WANTED}")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read ({error}). {_WANTED}") from error


def _of_text(text: str, suffix: str) -> list[Launch]:
    if is_unit(text):
        return launches_in_unit(text)
    if suffix in (".yaml", ".yml", ".json"):
        return _of_yaml(text)
    found = _of_script(text)
    return found or (_of_yaml(text) if _looks_like_yaml(text) else [])


def _of_script(text: str) -> list[Launch]:
    """Launches of a script and of the files that it writes from here-documents, in the order of their lines."""
    found: list[Launch] = []
    for match in _HERE_DOCUMENT.finditer(text):
        body, line = match["body"], text.count("\n", 0, match.start("body")) + 1
        found += launches_in_unit(body, line) if is_unit(body) else launches_in_shell(body, line)
    script = _HERE_DOCUMENT.sub(lambda match: match["head"] + "\n" * match["body"].count("\n"), text)
    return sorted([*launches_in_shell(script), *found], key=lambda launch: launch.line)


def _of_yaml(text: str) -> list[Launch]:
    try:
        return launches_in_yaml(text)
    except yaml.YAMLError as error:
        place = getattr(error, "problem_mark", None)
        at = f" in line {place.line + 1}" if place else ""
        reason = getattr(error, "problem", None) or error
        raise UsageError(f"This YAML cannot be read{at}: {reason}. A template must be rendered first.") from error


def _looks_like_yaml(text: str) -> bool:
    return re.search(r"^[\w-]+:(\s|$)", text, re.M) is not None
