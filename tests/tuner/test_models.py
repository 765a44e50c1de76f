import json
from pathlib import Path

import pytest

from autotune.errors import UsageError
from autotune.tuner.models import choose_model

CONFIG = {"architectures": ["Qwen3ForCausalLM"], "vocab_size": 4096, "max_position_embeddings": 512}


def test_a_folder_is_served_by_its_absolute_path_and_known_by_its_digest(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    choice = choose_model(str(tmp_path))
    assert choice.serve == str(tmp_path) and choice.vocab_size == 4096
    assert choice.revision.startswith("sha256:") and not choice.demo


def test_a_hub_id_is_read_from_the_hubs_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = tmp_path / "models--org--tiny" / "snapshots" / "0123abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps(CONFIG))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    choice = choose_model("org/tiny")
    assert (choice.serve, choice.revision, choice.vocab_size) == ("org/tiny", "0123abc", 4096)


def test_a_hub_id_that_is_not_on_disk_is_left_to_vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert choose_model("org/absent").revision == "unknown"


@pytest.mark.parametrize("given", ["/no/such/model", "./nowhere", "a/b/c", "~/nowhere", "what is this"])
def test_a_path_without_a_model_is_refused(given: str) -> None:
    with pytest.raises(UsageError, match="no model folder"):
        choose_model(given)


def test_a_folder_without_a_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no config\.json"):
        choose_model(str(tmp_path))


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"hidden_size": "abc"}, "hidden_size = 'abc'"),
        ({"num_hidden_layers": -2}, "num_hidden_layers = -2"),
        ({"vocab_size": 0}, "vocab_size = 0"),
        ({"num_attention_heads": 2.5}, "num_attention_heads = 2.5"),
        ({"head_dim": float("nan")}, "head_dim = nan"),
        ({"text_config": {"hidden_size": True}}, "hidden_size = True"),
        ({"architectures": None}, "neither a model_type nor architectures"),
    ],
)
def test_a_broken_config_is_named_as_the_models_fault(tmp_path: Path, wrong: dict[str, object], told: str) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**CONFIG, **wrong}))
    with pytest.raises(UsageError) as error:
        choose_model(str(tmp_path))
    assert str(error.value).startswith(f"the model is at fault: {file} ") and told in str(error.value)


def test_sizes_per_layer_and_sizes_left_out_are_no_fault(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "intermediate_size": [64, 128], "head_dim": None}))
    assert choose_model(str(tmp_path)).facts.hidden_size is None


def test_no_model_means_the_demonstration_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    choice = choose_model(None)
    assert choice.demo and choice.folder is not None and choice.folder.is_relative_to(tmp_path)
