"""The texts that a model is asked about: those that ship with the project, or a person's own prompts.

The shipped ones are our own writing: English of four kinds, five other languages, code, a query with its JSON, and
numbers. Two parts of every set are derived from its passages:

* openings, the first half of a passage, which the model goes on with: what it answers while it decodes;
* a needle: a long run of other text with a code word near its start, which is asked for at the end. It only comes
  out right where the attention over a long KV cache still works.

Lengths are in characters here, because the tokenizer is the server's; token ids are cut to the engine's context later.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.errors import UsageError

FOLDER = Path(__file__).parent / "passages"
SHORTEST = 40
# A long prompt costs memory beside the KV cache (its logits), so long passages are cut.
LONGEST = 1200
MOST_PASSAGES = 24
MOST_OPENINGS = 5
NEEDLE_LENGTH = 3000
NEEDLE = "The code word of the lighthouse is amber seventeen."
QUESTION = "\n\nQuestion: What is the code word of the lighthouse?\nAnswer: The code word of the lighthouse is"


@dataclass(frozen=True, slots=True)
class Texts:
    """``passages`` are read, ``openings`` are gone on with by the model; ``source`` is what a person sees."""

    source: str
    passages: tuple[str, ...]
    openings: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Sixteen hex digits that tell this set from every other."""
        text = json.dumps([self.passages, self.openings], ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def load_texts(file: Path | None = None) -> Texts:
    """The shipped texts, or those of ``file``. Raises ``UsageError``."""
    if file is None:
        source, passages = "shipped texts", [path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.txt"))]
    else:
        source, passages = file.name, list(_own(file))
    cut = [text.strip()[:LONGEST] for text in _spread(passages, MOST_PASSAGES)]
    openings = [text[: len(text) // 2] for text in _spread(cut, MOST_OPENINGS)]
    return Texts(source, tuple(cut), (*openings, needle(cut, NEEDLE_LENGTH)))


def needle(passages: Sequence[str], length: int) -> str:
    """A prompt of about ``length`` characters that hides a code word behind other text and asks for it."""
    room = max(0, length - len(NEEDLE) - len(QUESTION))
    filler = "\n\n".join(passages)
    filler = (filler * (1 + room // max(1, len(filler))))[:room]
    start = min(200, len(filler) // 8)
    return f"{filler[:start]}\n\n{NEEDLE}\n\n{filler[start:]}{QUESTION}"


def _spread(texts: Sequence[str], most: int) -> list[str]:
    """At most ``most`` of the texts, evenly over their order."""
    if len(texts) <= most:
        return list(texts)
    return [texts[i * len(texts) // most] for i in range(most)]


def _own(file: Path) -> Iterator[str]:
    """Prompts of a person's file: JSON lines, or plain text in paragraphs."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--quality-data {file} cannot be read: {error}") from error
    found = list(_json_lines(file, text) if file.suffix in (".jsonl", ".json") else _paragraphs(text))
    long_enough = [entry for entry in found if len(entry.strip()) >= SHORTEST]
    if not long_enough:
        raise UsageError(
            f"--quality-data {file} holds no text of {SHORTEST} characters or more. Give JSON lines with "
            '"prompt", "text" or "messages", or plain text in paragraphs.'
        )
    yield from long_enough


def _paragraphs(text: str) -> Iterator[str]:
    """Paragraphs, joined until they have some length."""
    waiting = ""
    for paragraph in text.split("\n\n"):
        waiting = f"{waiting}\n\n{paragraph}" if waiting else paragraph
        if len(waiting) >= LONGEST // 2:
            yield waiting
            waiting = ""
    if waiting:
        yield waiting


def _json_lines(file: Path, text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except ValueError as error:
            raise UsageError(f"--quality-data {file}, line {number}: {error}. Write one JSON object a line.") from error
        yield _text(entry)


def _text(entry: Any) -> str:
    """The words of one request, whichever of the usual shapes it has."""
    if isinstance(entry, str):
        return entry
    if not isinstance(entry, dict):
        return ""
    inner = entry.get("body")
    body: dict[str, Any] = inner if isinstance(inner, dict) else entry
    words = body.get("prompt") or body.get("text")
    if isinstance(words, str):
        answer = body.get("completion") or body.get("output") or ""
        return f"{words}\n{answer}" if isinstance(answer, str) and answer else words
    messages = body.get("messages") or body.get("conversations") or []
    return "\n".join(f"{m.get('role', 'user')}: {m.get('content')}" for m in messages if isinstance(m, dict))
