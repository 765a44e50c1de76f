import json
from pathlib import Path

import pytest

from autotune.errors import UsageError
from autotune.quality.texts import LONGEST, NEEDLE, QUESTION, load_texts, needle


def test_the_shipped_set_has_several_languages_code_numbers_and_a_needle() -> None:
    texts = load_texts()
    together = "\n".join(texts.passages)
    assert all(word in together for word in ("def merge", "SELECT", "100 - 37 = 63", "Buchhändler", "春", "деревне"))
    assert texts.openings[-1].endswith(QUESTION) and NEEDLE in texts.openings[-1]
    assert 2500 < len(texts.openings[-1]) <= 3100
    assert load_texts().digest == texts.digest


def test_a_persons_prompts_are_read_in_the_usual_shapes(tmp_path: Path) -> None:
    words = "This is a prompt of some length, long enough to be scored. "
    lines = [
        {"prompt": words + "one"},
        {"messages": [{"role": "user", "content": words + "two"}]},
        {"body": {"prompt": words + "three"}},
    ]
    file = tmp_path / "mine.jsonl"
    file.write_text("\n".join(json.dumps(line) for line in lines))
    passages = load_texts(file).passages
    assert [p.split()[-1] for p in passages] == ["one", "two", "three"]
    plain = tmp_path / "mine.txt"
    plain.write_text(f"{words * 20}\n\n{words * 3}")
    assert len(load_texts(plain).passages) == 2 and len(load_texts(plain).passages[0]) <= LONGEST


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.jsonl", "{", "line 1"),
        ("a.jsonl", '{"x": 1}', "holds no text"),
        ("a.txt", "short", "holds no text"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(tmp_path: Path, name: str, content: str, words: str) -> None:
    file = tmp_path / name
    file.write_text(content)
    with pytest.raises(UsageError, match=words):
        load_texts(file)
    with pytest.raises(UsageError, match="cannot be read"):
        load_texts(tmp_path / "absent.txt")


def test_a_needle_fits_any_length() -> None:
    assert NEEDLE in needle(["word " * 30], 300) and len(needle(["word " * 30], 300)) < 330
