"""Takes ``docker run OPTIONS IMAGE ARGUMENTS`` apart."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from autotune.check.launch import Word

# Options without a value; every other one takes the next word, unless it holds a "=".
_ALONE = {"--detach", "--interactive", "--tty", "--publish-all", "-P", "--rm", "--init", "--privileged", "--read-only"}
_ALONE |= {"--no-healthcheck", "--oom-kill-disable", "--sig-proxy", "--disable-content-trust", "--quiet", "--replace"}
_LETTERS_ALONE = re.compile(r"-[ditq]+")


@dataclass(frozen=True, slots=True)
class DockerRun:
    """The image, the words behind it, the variables that ``-e`` sets, and how many GPUs ``--gpus`` gives."""

    image: Word
    words: list[Word]
    env: list[tuple[str, Word]]
    entrypoint: Word | None
    gpus: int | None


def split_docker_run(words: list[Word]) -> DockerRun | None:
    """The parts of the words behind ``docker``; None for other commands (``docker exec`` has no image)."""
    verbs = [place for place, word in enumerate(words[:3]) if word.text in ("run", "create")]
    if not verbs:
        return None
    options: list[tuple[str, Word]] = []
    place = verbs[0] + 1
    while place < len(words) and words[place].text.startswith("-"):
        word = words[place]
        name, has_value, value = word.text.partition("=")
        if has_value:
            options.append((name, Word(value, word.line, word.whole)))
        elif name not in _ALONE and not _LETTERS_ALONE.fullmatch(name) and place + 1 < len(words):
            place += 1
            options.append((name, words[place]))
        place += 1
    if place >= len(words):
        return None
    entrypoint = next((value for name, value in options if name == "--entrypoint"), None)
    gpus = next((_count(value.text) for name, value in options if name == "--gpus"), None)
    return DockerRun(words[place], words[place + 1 :], list(_variables(options)), entrypoint, gpus)


def _count(text: str) -> int | None:
    """``2`` is two; ``"device=0,1"`` is two as well; ``all`` is not known."""
    if text.isdigit():
        return int(text)
    listed = re.fullmatch(r'"?device=([^"]+)"?', text)
    return len(listed[1].split(",")) if listed else None


def _variables(options: list[tuple[str, Word]]) -> Iterator[tuple[str, Word]]:
    for name, value in options:
        variable, has_value, text = value.text.partition("=")
        if name in ("-e", "--env") and has_value:
            yield variable, Word(text, value.line, value.whole)
