"""Finds launches in YAML: Docker Compose, Kubernetes and its kin, and vLLM's own configuration file.

A container is any mapping with an image, a command or arguments, wherever it lies; so Deployments, Jobs, lists and
custom resources that embed a pod are found alike. In Compose ``command`` are the image's arguments and
``entrypoint`` replaces its command; in Kubernetes they are called ``args`` and ``command``. Any other flat
mapping is what ``vllm serve --config`` reads: one flag a key.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import yaml

from autotune.check.launch import Launch, Word, in_image, is_vllm_image
from autotune.check.shell import fill, launches_in_command, launches_in_shell, split_words

Node = yaml.Node

# A vLLM configuration holds at least one of these; any other mapping is somebody else's file.
_CONFIG_KEYS = {"model", "model-tag", "max-model-len", "tensor-parallel-size", "gpu-memory-utilization"}
_CONFIG_KEYS |= {"served-model-name", "max-num-seqs", "max-num-batched-tokens", "quantization", "kv-cache-dtype"}


def launches_in_yaml(text: str) -> list[Launch]:
    """Every launch of a YAML file. Raises ``yaml.YAMLError`` where it is none."""
    found: list[Launch] = []
    for document in yaml.compose_all(text, Loader=yaml.SafeLoader):
        if isinstance(document, yaml.MappingNode):
            found += _in_document(document)
    return found


def _in_document(document: yaml.MappingNode) -> list[Launch]:
    keys = _mapping(document)
    if "services" in keys:
        return list(_containers(document, "entrypoint", "command"))
    if "apiVersion" in keys or "kind" in keys:
        return list(_containers(document, "command", "args"))
    nested = [_part(launch) for launch in _containers(document, "command", "args") if launch.words]
    if nested or _CONFIG_KEYS & {key.replace("_", "-") for key in keys}:
        return nested or [_config(document)]
    return [launch for node in _scalars(document) for launch in launches_in_shell(str(node.value), _line(node))]


def _part(launch: Launch) -> Launch:
    """In the values of a chart the model is named in a place of the chart's own."""
    starts_with_flag = launch.words[0].text.startswith("-")
    return replace(launch, kind="fragment") if launch.kind == "serve" and starts_with_flag else launch


def _scalars(node: Node) -> Iterator[yaml.ScalarNode]:
    """Every text in which vLLM is spoken of."""
    if isinstance(node, yaml.ScalarNode) and "vllm" in str(node.value):
        yield node
    for item in node.value if isinstance(node, yaml.CollectionNode) else ():
        for part in item if isinstance(item, tuple) else (item,):
            yield from _scalars(part)


def _containers(node: Node, command: str, arguments: str, name: str = "") -> Iterator[Launch]:
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _containers(item, command, arguments, name)
    if isinstance(node, yaml.MappingNode):
        keys = _mapping(node)
        yield from (
            replace(launch, name=_text(keys.get("name")) or name) for launch in _in_container(keys, command, arguments)
        )
        for key, value in keys.items():
            yield from _containers(value, command, arguments, key)


def _in_container(keys: Mapping[str, Node], command: str, arguments: str) -> list[Launch]:
    image = _text(keys.get("image"))
    if not isinstance(keys.get("image", keys.get(arguments, keys.get(command))), yaml.ScalarNode | yaml.SequenceNode):
        return []
    env = dict(_environment(keys.get("environment") or keys.get("env")))
    start, rest = _words(keys.get(command), env), _words(keys.get(arguments), env)
    found = launches_in_command([*start, *rest], env)
    if not found and not start and image and is_vllm_image(image):
        line = next(iter(rest), Word("", keys["image"].start_mark.line + 1)).line
        found = [in_image(image, rest, line)]
    gpus = _gpu_count(keys)
    return [replace(launch, image=image, gpus=gpus).with_env(env.items()) for launch in found]


def _gpu_count(keys: Mapping[str, Node]) -> int | None:
    """``resources.limits["nvidia.com/gpu"]`` of a container, or the devices that a Compose service reserves."""
    for path in (("resources", "limits"), ("resources", "requests")):
        for name, node in _below(keys, *path).items():
            if name.endswith("/gpu") and (_text(node) or "").isdigit():
                return int(_text(node) or 0)
    devices = _below(keys, "deploy", "resources", "reservations").get("devices")
    for device in devices.value if isinstance(devices, yaml.SequenceNode) else ():
        entry = _mapping(device) if isinstance(device, yaml.MappingNode) else {}
        if isinstance(ids := entry.get("device_ids"), yaml.SequenceNode):
            return len(ids.value)
        if (count := _text(entry.get("count")) or "").isdigit():
            return int(count)
    return None


def _below(keys: Mapping[str, Node], *path: str) -> Mapping[str, Node]:
    for name in path:
        node = keys.get(name)
        keys = _mapping(node) if isinstance(node, yaml.MappingNode) else {}
    return keys


def _words(node: Node | None, env: Mapping[str, Word]) -> list[Word]:
    """A command as a list of words, or as one text that is split like a shell's."""
    if isinstance(node, yaml.ScalarNode):
        return split_words(node.value, _line(node), env)
    if isinstance(node, yaml.SequenceNode):
        return [_filled(item, env) for item in node.value if isinstance(item, yaml.ScalarNode)]
    return []


def _filled(item: yaml.ScalarNode, env: Mapping[str, Word]) -> Word:
    """A list's word; Kubernetes fills in ``$(NAME)``. A script for ``sh -c`` keeps its variables."""
    text = str(item.value)
    if "\n" in text or " vllm " in f" {text} ":
        return Word(text, _line(item))
    for name, word in env.items():
        text = text.replace(f"$({name})", word.text if word.whole else f"${{{name}}}")
    return fill(text, _line(item))


def _environment(node: Node | None) -> Iterator[tuple[str, Word]]:
    """``{A: b}``, ``[A=b]`` or ``[{name: A, value: b}]``; a value that comes from elsewhere is not whole."""
    if isinstance(node, yaml.MappingNode):
        for key, value in _mapping(node).items():
            yield key, fill(_text(value) or "", _line(value))
    for item in node.value if isinstance(node, yaml.SequenceNode) else ():
        if isinstance(item, yaml.ScalarNode):
            name, has_value, text = str(item.value).partition("=")
            yield name, fill(text, _line(item)) if has_value else Word("", _line(item), whole=False)
        elif isinstance(item, yaml.MappingNode):
            keys = _mapping(item)
            stated = keys.get("value")
            word = fill(_text(stated) or "", _line(stated)) if stated else Word("", _line(item), whole=False)
            yield _text(keys.get("name")) or "", word


def _config(document: yaml.MappingNode) -> Launch:
    """The words that vLLM makes of its configuration file. A ``false`` is kept as ``--flag=false``."""
    words: list[Word] = []
    for key, value in document.value:
        line = key.start_mark.line + 1
        flag, content = f"--{key.value}", yaml.SafeLoader("").construct_document(value)
        if content is False:
            words.append(Word(f"{flag}=false", line))
        else:
            words += [Word(text, line) for text in [flag, *_values(content)]]
    return Launch("config", tuple(words), 1)


def _values(content: Any) -> list[str]:
    if content is True:
        return []
    if isinstance(content, dict):
        return [json.dumps(content)]
    return [str(item) for item in content] if isinstance(content, list) else [str(content)]


def _mapping(node: yaml.MappingNode) -> dict[str, Node]:
    return {str(key.value): value for key, value in node.value}


def _text(node: Node | None) -> str | None:
    return str(node.value) if isinstance(node, yaml.ScalarNode) else None


def _line(node: Node) -> int:
    """The line on which a value's text begins; a block's text begins below its ``|``."""
    block = isinstance(node, yaml.ScalarNode) and node.style in ("|", ">")
    return int(node.start_mark.line) + (2 if block else 1)
