"""Which model is served, and what its files say about it."""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.errors import UsageError
from autotune.space.model import ModelFacts, broken_size

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoice:
    """``serve`` is what vLLM is given; ``folder`` holds the model's files where they are on this disk.

    ``revision`` is the hub's commit, or a digest of config.json for a folder. ``demo`` marks the built-in model.
    """

    serve: str
    name: str
    revision: str
    folder: Path | None
    facts: ModelFacts
    config: dict[str, Any]
    demo: bool = False

    @property
    def vocab_size(self) -> int | None:
        """Number of token ids, None where the files do not say."""
        return self.facts.vocab_size


def choose_model(given: str | None) -> ModelChoice:
    """The model of ``--model``, or the demonstration model where none was given.

    Raises ``UsageError`` for a path without a model and for a name that is no hub id.
    """
    if given is None:
        from autotune.engine.demo_model import default_demo_folder, write_demo_model

        return _local(write_demo_model(default_demo_folder()), name="demo-qwen3", demo=True)
    path = Path(given).expanduser()
    if path.is_dir():
        return _local(path.resolve(), name=path.resolve().name)
    if path.exists() or given.startswith(("/", ".", "~")) or not _HUB_ID.fullmatch(given):
        raise UsageError(f"there is no model folder {given}. Give a folder that holds config.json, or a hub id.")
    return _from_hub(given)


def _local(folder: Path, *, name: str, demo: bool = False) -> ModelChoice:
    file = folder / "config.json"
    if not file.is_file():
        raise UsageError(f"{folder} holds no config.json, so it is no model. Give the folder that does.")
    facts = ModelFacts.from_config_json(file)
    text = file.read_bytes()
    config: dict[str, Any] = json.loads(text)
    _refuse_broken(config, file)
    return ModelChoice(
        serve=str(folder),
        name=name,
        revision="sha256:" + hashlib.sha256(text).hexdigest()[:16],
        folder=folder,
        facts=facts,
        config=config,
        demo=demo,
    )


def _refuse_broken(config: Mapping[str, Any], file: Path) -> None:
    """No engine can start on such a file, and the machine would be blamed for it."""
    if size := broken_size(config):
        raise UsageError(f"the model is at fault: {file} says {size}, and that must be a whole number above 0.")
    if not (config.get("model_type") or config.get("architectures")):
        raise UsageError(f"the model is at fault: {file} names neither a model_type nor architectures.")


def _from_hub(hub_id: str) -> ModelChoice:
    """A hub id; its files count where the hub's cache on this disk has them, else vLLM will fetch them."""
    snapshots = _hub_cache() / f"models--{hub_id.replace('/', '--')}" / "snapshots"
    found = sorted(snapshots.glob("*/config.json"), key=lambda p: p.stat().st_mtime)
    if not found:
        return ModelChoice(
            serve=hub_id, name=hub_id.split("/")[-1], revision="unknown", folder=None, facts=ModelFacts(), config={}
        )
    folder = found[-1].parent
    facts = ModelFacts.from_config_json(folder)
    config: dict[str, Any] = json.loads(found[-1].read_text(encoding="utf-8"))
    _refuse_broken(config, found[-1])
    return ModelChoice(
        serve=hub_id,
        name=hub_id.split("/")[-1],
        revision=folder.name,
        folder=folder,
        facts=facts,
        config=config,
    )


def _hub_cache() -> Path:
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    return Path(os.environ.get("HF_HUB_CACHE", home / "hub")).expanduser()
