"""What can be known about the model of a launch without the network.

In this order: the config.json that the person names, the model's folder, the hub's cache on this disk, a short
list of well-known models, and last the name itself, which tells the family and whether the checkpoint is
quantized (``-AWQ``).
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from autotune.engine.model_shape import ModelShape, read_tensor_bytes, shape_of
from autotune.errors import UsageError
from autotune.space.model import ModelFacts

_FILE = Path(__file__).with_name("models.json")
# What a repository's name adds to the model's own: a quantization, or the form of its files.
_SUFFIX = re.compile(r"-(awq|gptq|fp8|int[48]|bnb|gguf|w\d+a\d+|4bit|8bit|dynamic|quantized)\b.*")
_UNSTATED = "unknown"


@dataclass(frozen=True, slots=True)
class Model:
    """A model, as far as it is known. ``config`` is its config.json, empty where nothing was found.

    ``quantization`` is the checkpoint's method, None where it has none; it counts only with
    ``quantization_known``. ``source`` says in a few words where the knowledge comes from.
    """

    name: str
    source: str
    config: Mapping[str, Any] = field(default_factory=dict)
    facts: ModelFacts = field(default_factory=ModelFacts)
    quantization: str | None = None
    quantization_known: bool = False
    shape: ModelShape | None = None

    @property
    def short_name(self) -> str:
        """The last part of the name, in lower case."""
        return self.name.rstrip("/").rsplit("/", 1)[-1].lower()


def find_model(name: str, config_file: Path | None = None, environ: Mapping[str, str] | None = None) -> Model:
    """Everything that is known about a model. Raises ``UsageError`` where ``config_file`` cannot be used."""
    if config_file is not None:
        return _from_folder(name, config_file, str(config_file))
    folder = Path(name).expanduser()
    if (folder / "config.json").is_file():
        return _from_folder(name, folder, "its config.json")
    if cached := _in_hub_cache(name, os.environ if environ is None else environ):
        return _from_folder(name, cached, "its config.json in the hub's cache")
    return _from_name(name)


def _from_folder(name: str, path: Path, source: str) -> Model:
    facts = ModelFacts.from_config_json(path)
    file = path / "config.json" if path.is_dir() else path
    config = json.loads(file.read_text(encoding="utf-8"))
    shape = shape_of(config, read_tensor_bytes(file.parent))
    return Model(name, source, config, facts, facts.quantization, True, shape)


def _in_hub_cache(name: str, environ: Mapping[str, str]) -> Path | None:
    home = Path(environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    hub = Path(environ.get("HF_HUB_CACHE", home / "hub")).expanduser()
    found = sorted(hub.glob(f"models--{name.replace('/', '--')}/snapshots/*/config.json"), key=os.path.getmtime)
    return found[-1].parent if found else None


def _from_name(name: str) -> Model:
    known = json.loads(_FILE.read_bytes())
    model = Model(name, "its name")
    quantization = next((q for pattern, q in known["quantized_names"] if re.search(pattern, model.short_name)), None)
    plain = _SUFFIX.sub("", model.short_name)
    shape_name = known["same_as"].get(plain, plain)
    config = dict(known["shapes"].get(shape_name, {}))
    if not config:
        matches = (a for pattern, a in known["architectures"] if re.match(pattern, model.short_name))
        facts = ModelFacts(architecture=next(matches, ""), quantization=quantization)
        return replace(model, facts=facts, quantization=quantization, quantization_known=quantization is not None)
    if quantization:
        config["quantization_config"] = {"quant_method": quantization}
    facts = ModelFacts.from_config_json(config)
    return Model(name, "autotune's list of models", config, facts, quantization, True, shape_of(config))


def read_config_file(path: Path) -> Path:
    """``--model-config``: a config.json or a folder with one. Raises ``UsageError`` where there is none."""
    if not path.exists():
        raise UsageError(f"--model-config {path}: no such file. Give the model's config.json.")
    return path
