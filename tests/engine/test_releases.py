"""The data about published versions: what it holds, and what it says about things that came and went."""

import json
from pathlib import Path

import pytest

from autotune.engine.releases import RELEASES_FILE, Releases, load_releases
from autotune.engine.vocabulary import read_vocabulary
from autotune.errors import UsageError


@pytest.fixture(scope="module")
def releases() -> Releases:
    return load_releases()


def test_every_release_names_its_wheel(releases: Releases) -> None:
    for release in releases.data["releases"]:
        assert release["file"].startswith(f"vllm-{release['version']}-")
        assert len(release["sha256"]) == 64


@pytest.mark.parametrize("version", ["0.6.3.post1", "0.10.2", "0.20.2", "0.24.0", "0.26.0", "0.32.0", "0.33.0"])
def test_a_table_holds_what_every_vllm_has(releases: Releases, version: str) -> None:
    table = releases.table(version)
    assert len(table.flags) > 100
    for name in ("max-model-len", "gpu-memory-utilization", "port", "served-model-name", "enable-auto-tool-choice"):
        assert table.get(name), name
    vocabulary = releases.vocabulary(version)
    assert "hermes" in vocabulary.tool_parsers
    assert "LlamaForCausalLM" in vocabulary.architectures
    assert "VLLM_LOGGING_LEVEL" in table.known_env


def test_names_stand_in_the_file_once(releases: Releases) -> None:
    text = RELEASES_FILE.read_text()
    assert len(text) < 400_000
    rows = [json.dumps({k: v for k, v in row.items() if k != "in"}) for row in releases.data["flags"]]
    assert len(rows) == len(set(rows))


@pytest.mark.parametrize(
    ("wanted", "taken"),
    [
        ("0.32.0", "0.32.0"),
        ("v0.32.0", "0.32.0"),
        ("0.6.3", "0.6.3.post1"),
        ("0.8.5", "0.8.5.post1"),
        ("0.10", "0.10.2"),
        ("0.28.1", "0.28.0"),
        ("0.32.0+cpu", "0.32.0"),
        ("1.0", "0.33.0"),
    ],
)
def test_the_nearest_known_version(releases: Releases, wanted: str, taken: str) -> None:
    assert releases.nearest(wanted) == taken


@pytest.mark.parametrize("wanted", ["0.5.0", "newest"])
def test_a_version_that_cannot_be_placed(releases: Releases, wanted: str) -> None:
    with pytest.raises(UsageError, match=wanted):
        releases.nearest(wanted)


def test_lifetimes_bracket_a_change(releases: Releases) -> None:
    gone = releases.flag_lifetime("--guided-decoding-backend")
    assert gone and (gone.last, gone.after) == ("0.10.2", "0.11.2")
    came = releases.name_lifetime("architectures", "Qwen3ForCausalLM")
    assert came and (came.before, came.first, came.after) == ("0.8.3", "0.8.4", None)
    assert releases.flag_lifetime("--use-cuda-graph") is None
    assert releases.choice_lifetime("kv-cache-dtype", "int4") is None
    choice = releases.choice_lifetime("kv-cache-dtype", "int4_per_token_head")
    assert choice and (choice.before, choice.first) == ("0.24.0", "0.25.1")


def test_the_last_of_two_lives_counts() -> None:
    data = {
        "releases": [{"version": v, "paired": False} for v in ("0.1", "0.2", "0.3", "0.4")],
        "flags": [{"name": "x", "in": [["0.1", "0.1"]]}, {"name": "x", "kind": "int", "in": [["0.3", "0.3"]]}],
    }
    life = Releases(data).flag_lifetime("--x")
    assert life and (life.before, life.first, life.last, life.after) == ("0.2", "0.3", "0.3", "0.4")


def test_only_the_newest_pair_enable_with_disable(releases: Releases) -> None:
    assert releases.table("0.33.0").resolve("--disable-log-requests").negated
    assert releases.table("0.32.0").resolve("--disable-log-requests").status == "unknown"


def test_names_are_read_from_dicts_and_from_decorators(tmp_path: Path) -> None:
    files = {
        "tool_parsers/__init__.py": '_TOOL_PARSERS_TO_REGISTER = {"new": ("a", "B")}',
        "entrypoints/openai/tool_parsers/old.py": (
            '@ToolParserManager.register_module(["old", "older"])\nclass A: ...\n'
            '@ReasoningParserManager.register_module("other")\nclass B: ...'
        ),
        "reasoning/__init__.py": '_REASONING_PARSERS_TO_REGISTER = {"deep": ("a", "B")}',
        "model_executor/models/registry.py": (
            '_TEXT_MODELS = {"AForCausalLM": ("a", "A")}\n_PREVIOUSLY_SUPPORTED_MODELS = {"Gone": "0.9"}\n'
            "_VLLM_MODELS: dict = {**_TEXT_MODELS}"
        ),
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = read_vocabulary(tmp_path)
    assert found.tool_parsers == ("new", "old", "older")
    assert found.reasoning_parsers == ("deep",)
    assert found.architectures == ("AForCausalLM",)
