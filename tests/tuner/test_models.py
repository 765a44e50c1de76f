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


def test_no_model_means_the_demonstration_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    choice = choose_model(None)
    assert choice.demo and choice.folder is not None and choice.folder.is_relative_to(tmp_path)
