import json
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from autotune.engine.demo_model import DEMO_MODEL_NAME, default_demo_folder, write_demo_model
from autotune.errors import EnvironmentFault, UsageError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_demo_model(tmp_path_factory.mktemp("models") / "demo")


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header, body = json.loads(raw[8 : 8 + length]), raw[8 + length :]
    del header["__metadata__"]
    assert max(entry["data_offsets"][1] for entry in header.values()) == len(body)
    tensors = {}
    for name, entry in header.items():
        start, end = entry["data_offsets"]
        upper_halves = np.frombuffer(body[start:end], "<u2").astype(np.uint32)
        tensors[name] = (upper_halves << 16).view(np.float32).reshape(entry["shape"])
    return tensors


def test_weights_have_the_shapes_the_config_asks_for(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    tensors = read_tensors(folder / "model.safetensors")
    assert config["max_position_embeddings"] == 4096
    assert tensors["model.embed_tokens.weight"].shape == (config["vocab_size"], config["hidden_size"])
    assert sum(".self_attn.q_proj." in name for name in tensors) == config["num_hidden_layers"]
    heads = config["num_attention_heads"] * config["head_dim"]
    assert tensors["model.layers.1.self_attn.o_proj.weight"].shape == (config["hidden_size"], heads)


def test_weights_are_sane_numbers_and_end_of_text_is_never_the_best_guess(folder: Path) -> None:
    tensors = read_tensors(folder / "model.safetensors")
    assert all(np.isfinite(values).all() for values in tensors.values())
    embedding = tensors["model.embed_tokens.weight"]
    assert not embedding[:3].any()
    assert embedding[3:].std() == pytest.approx(1 / 16, rel=0.01)


def test_safetensors_library_agrees(folder: Path) -> None:
    safetensors = pytest.importorskip("safetensors", reason="comes with vLLM")
    with safetensors.safe_open(str(folder / "model.safetensors"), framework="numpy") as file:
        assert len(file.keys()) == len(read_tensors(folder / "model.safetensors"))


def test_tokenizer_knows_every_id_of_the_model(folder: Path) -> None:
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    assert sorted(vocabulary.values()) == list(range(4096))


def test_every_merge_joins_known_entries_into_a_known_entry(folder: Path) -> None:
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    assert all({left, right, left + right} <= model["vocab"].keys() for left, right in model["merges"])


def test_tokenizers_library_round_trips_any_text(folder: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="comes with vLLM")
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    text = "The banana costs 3 €,\n\tnaïve 漢字 🙂"
    ids = tokenizer.encode(text).ids
    assert tokenizer.decode(ids) == text
    assert len(ids) < len(text.encode())
    assert tokenizer.encode("<|im_end|>").ids == [2]
    assert all(tokenizer.decode([i]) for i in range(3, 4096))


def test_the_same_model_is_made_everywhere(folder: Path, tmp_path: Path) -> None:
    again = write_demo_model(tmp_path / "again")
    assert {file.name: file.read_bytes() for file in again.iterdir()} == {
        file.name: file.read_bytes() for file in folder.iterdir()
    }


def test_a_complete_folder_is_not_touched(folder: Path) -> None:
    before = {file: file.stat().st_mtime_ns for file in [folder, *folder.iterdir()]}
    assert write_demo_model(folder) == folder
    assert before == {file: file.stat().st_mtime_ns for file in [folder, *folder.iterdir()]}


@pytest.mark.parametrize("damaged", ["model.safetensors", "tokenizer.json", "autotune-demo.json"])
def test_a_damaged_folder_is_written_anew(tmp_path: Path, damaged: str) -> None:
    folder = write_demo_model(tmp_path / "demo")
    good = (folder / damaged).read_bytes()
    (folder / damaged).write_bytes(good[:50])
    write_demo_model(folder)
    assert (folder / damaged).read_bytes() == good
    assert [entry.name for entry in tmp_path.iterdir()] == ["demo"]


def test_an_empty_folder_is_filled_and_a_foreign_one_left_alone(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert (write_demo_model(tmp_path / "empty") / "config.json").exists()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match="foreign"):
        write_demo_model(tmp_path / "foreign")
    assert (tmp_path / "foreign" / "thesis.txt").exists()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFault, match="file/demo"):
        write_demo_model(tmp_path / "file" / "demo")


def test_two_processes_at_once_both_get_a_complete_folder(tmp_path: Path) -> None:
    target = tmp_path / "demo"
    code = f"""
from pathlib import Path
from autotune.engine.demo_model import write_demo_model
write_demo_model(Path({str(target)!r}))
"""
    running = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    assert [process.wait(60) for process in running] == [0, 0]
    assert (target / "model.safetensors").stat().st_size > 4_000_000


def test_the_cache_folder_follows_the_environment() -> None:
    assert default_demo_folder({"XDG_CACHE_HOME": "/x"}) == Path("/x/vllm-autotune/models") / DEMO_MODEL_NAME
    assert default_demo_folder({}) == Path.home() / ".cache/vllm-autotune/models" / DEMO_MODEL_NAME
