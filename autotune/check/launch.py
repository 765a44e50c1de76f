"""A launch as it is written down: the words that vLLM gets, the variables around it, and where they stand."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

_IMAGE_VERSION = re.compile(r"vllm[^:@]*:v?(\d+\.\d+(?:\.\d+)?(?:\.post\d+)?)", re.I)


@dataclass(frozen=True, slots=True)
class Word:
    """One word after the shell has taken its quotation marks away, with its line (from 1).

    ``whole`` is false where a part is filled in only when the command runs, such as ``$MODEL``: nothing is said
    about the value of such a word.
    """

    text: str
    line: int
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Launch:
    """One start of a vLLM server. ``words`` are its arguments, without the command itself.

    ``kind`` tells the ways apart: ``serve`` (the model may stand without a flag), ``module`` (the older
    ``python -m vllm.entrypoints.openai.api_server``), ``config`` (a YAML file for ``--config``) and ``fragment``
    (arguments in a chart's values, where the model is named elsewhere). ``name`` is the service or container
    where the file has several. ``cut_off`` is a flag on a line of its own behind the command, which the shell
    takes for another command. ``gpus`` is how many the container gets, where the file says so.
    """

    kind: str
    words: tuple[Word, ...]
    line: int
    env: tuple[tuple[str, Word], ...] = ()
    image: str | None = None
    name: str = ""
    cut_off: Word | None = None
    gpus: int | None = None

    @property
    def image_version(self) -> str | None:
        """The vLLM version that the container image's tag states."""
        found = _IMAGE_VERSION.search(self.image or "")
        return found[1] if found else None

    def with_env(self, env: Iterable[tuple[str, Word]]) -> "Launch":
        """With variables from around it; its own win."""
        return replace(self, env=tuple({**dict(env), **dict(self.env)}.items()))


def find_launch(words: list[Word], *, image: str | None = None) -> Launch | None:
    """The launch in one command's words, whatever stands before it (``exec``, ``uv run``, ``numactl`` ...)."""
    for place, word in enumerate(words):
        after = [w.text for w in words[place + 1 : place + 3]]
        if word.text.rsplit("/", 1)[-1] == "vllm" and after[:1] == ["serve"]:
            return Launch("serve", tuple(words[place + 2 :]), word.line, image=image)
        if word.text == "-m" and after[:1] == ["vllm.entrypoints.cli.main"] and after[1:] == ["serve"]:
            return Launch("serve", tuple(words[place + 3 :]), word.line, image=image)
        if word.text == "-m" and after[:1] == ["vllm.entrypoints.openai.api_server"]:
            return Launch("module", tuple(words[place + 2 :]), word.line, image=image)
    return None


def is_vllm_image(image: str | None) -> bool:
    """Whether a container image starts vLLM by itself."""
    return image is not None and "vllm" in image.lower()


def in_image(image: str, words: list[Word], line: int) -> Launch:
    """What vLLM's own image makes of its arguments: a server, unless they name another command."""
    return find_launch(words, image=image) or Launch(_kind(words), tuple(words), line, image=image)


def _kind(words: list[Word]) -> str:
    """Newer images start ``vllm serve``, older ones the module; a model without a flag tells the former."""
    return "module" if any(word.text.split("=")[0] == "--model" for word in words) else "serve"
