"""Values that vLLM refuses, at once or after its imports."""

import difflib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace

from packaging.version import Version

from autotune.check.arguments import Setting
from autotune.check.case import WHEELS, Case, Finding, history
from autotune.engine.flag_reader import Flag
from autotune.engine.flags import FlagTable

# Plugins may bring further values for these; for all others vLLM knows the whole list.
_PLUGINS = {"load-format", "scheduler-cls", "tokenizer-mode", "distributed-executor-backend", "all2all-backend"}
# What people write for something that is called otherwise.
_MEANT = {
    ("kv-cache-dtype", "int4"): ("int4_per_token_head", "turboquant_4bit_nc", "fp8"),
    ("kv-cache-dtype", "int8"): ("int8_per_token_head", "fp8"),
    ("kv-cache-dtype", "fp16"): ("float16", "auto"),
    ("kv-cache-dtype", "bf16"): ("bfloat16", "auto"),
    ("kv-cache-dtype", "half"): ("float16", "auto"),
    ("dtype", "fp16"): ("float16",),
    ("dtype", "bf16"): ("bfloat16",),
    ("dtype", "fp8"): ("auto",),
    ("dtype", "int8"): ("auto",),
}
_FAMILY_PARSERS = (("qwen3-coder", "qwen3_coder"), ("qwen", "hermes"), ("llama-4", "llama4_pythonic"))
_LLAMA = (("llama-3", "llama3_json"), ("mistral", "mistral"), ("deepseek-v3", "deepseek_v3"))
# Before the limits stood in the sources, vLLM tested these by hand.
_LIMITS: Mapping[str, tuple[tuple[str, float], ...]] = {
    "gpu-memory-utilization": (("gt", 0), ("le", 1)),
    **dict.fromkeys(("max-num-seqs", "max-num-batched-tokens"), (("ge", 1),)),
    **dict.fromkeys(("tensor-parallel-size", "pipeline-parallel-size"), (("ge", 1),)),
}
_FALSE_COUNTS_SINCE = Version("0.28")
_ONLY_JSON_SINCE = Version("0.20")
# Some config classes refused unknown keys since 0.11, all since a version between 0.15.1 and 0.17.1.
_STRICT_KEYS_SINCE = Version("0.17")
_KEYS_MEANT = {
    ("compilation-config", "level"): "mode (`level` went between 0.17.1 and 0.18.1)",
    ("compilation-config", "use_cudagraph"): "cudagraph_mode",
    ("compilation-config", "full_cuda_graph"): "cudagraph_mode, with FULL",
}


def refused_values(case: Case) -> Iterator[Finding]:
    """Wrong types, values outside the limits, and values that are no choice."""
    for setting in case.arguments.settings:
        if setting.flag is None or setting.key or not setting.known:
            continue
        if not setting.values and not _stands_alone(setting):
            yield _finding(setting, "value-missing", f"{setting.word} needs a value", "", f"{setting.word} VALUE")
        elif setting.values and setting.flag.kind in ("bool", "switch") and case.launch.kind != "config":
            what = f"{setting.word} is a switch and takes no value, not {setting.text!r}"
            yield _finding(setting, "value-unwanted", what, "", _switch(setting))
        elif reason := _why_not(case, setting):
            yield reason


def _stands_alone(setting: Setting) -> bool:
    return setting.flag is not None and (setting.negated or setting.flag.kind in ("bool", "switch", "optional"))


def _switch(setting: Setting) -> str:
    off = setting.text.lower() in ("false", "0", "no", "off")
    return f"--no-{setting.name}" if off and setting.flag and setting.flag.negatable else f"--{setting.name}"


def _why_not(case: Case, setting: Setting) -> Finding | None:
    flag = setting.flag
    if flag is None or flag.kind in ("bool", "switch") or not setting.values:
        return None
    value = setting.text if flag.kind != "list" else setting.value
    reason = case.table.why_not(flag.name, value) or _beyond(case, flag, value)
    if reason is None:
        return None
    if flag.choices is not None:
        return _not_a_choice(case, setting)
    code = "value-out-of-range" if " must be " in reason else "value-wrong-type"
    return _finding(setting, code, reason, "vLLM refuses it when it builds its configuration", "")


def _beyond(case: Case, flag: Flag, value: object) -> str | None:
    limited = replace(flag, bounds=_LIMITS.get(flag.name, ()))
    return FlagTable(case.table.version, (limited,)).why_not(flag.name, value)


def _not_a_choice(case: Case, setting: Setting) -> Finding:
    flag = setting.flag
    assert flag is not None
    known = sorted(str(choice) for choice in flag.choices or () if choice is not None)
    life = case.releases.choice_lifetime(flag.name, setting.text)
    near = [choice for choice in _MEANT.get((flag.name, setting.text), ()) if choice in known]
    near = near or difflib.get_close_matches(setting.text, known, 3)
    plugin = flag.open_choices and flag.name in _PLUGINS
    why = "the parser passes it on, and vLLM refuses it later" if flag.open_choices else "the parser stops with exit 2"
    if life:
        why = f"{history(life)}; {why}"
    return Finding(
        level="warning" if plugin else "error",
        code="value-not-a-choice",
        what=f"{case.vllm} has no --{flag.name} {setting.text}",
        why="only a plugin could bring it" if plugin and not life else why,
        instead=f"{' or '.join(near)}" if near else _some(known),
        source=WHEELS,
        line=setting.line,
    )


def _some(known: list[str]) -> str:
    return f"one of {', '.join(known[:12])}" + (f" and {len(known) - 12} more" if len(known) > 12 else "")


def broken_json(case: Case) -> Iterator[Finding]:
    """JSON that a shell has taken the quotation marks from, or that is none."""
    for setting in case.arguments.settings:
        if not setting.flag or setting.flag.kind != "json" or setting.key or not setting.known or not setting.values:
            continue
        text = setting.text.strip()
        # Older parsers took other texts as well, such as image=2.
        if not text.startswith(("{", "[")) and case.version < _ONLY_JSON_SINCE:
            continue
        try:
            json.loads(text)
        except ValueError as error:
            what = f"the value of {setting.word} is no JSON: {error}"
            why = "the shell removes double quotation marks that stand outside single ones" if "{" in text else ""
            yield _finding(setting, "value-not-json", what, why, f'{setting.word} \'{{"key": "value"}}\'')


def unknown_keys(case: Case) -> Iterator[Finding]:
    """Keys that a config class does not have: they are renamed as often as flags, and --help lists none."""
    for setting in case.arguments.settings:
        known = setting.flag.keys if setting.flag else ()
        if not known or not setting.known or setting.negated:
            continue
        for key in _keys(setting):
            if key not in known:
                near = difflib.get_close_matches(key, known, 3)
                strict = case.version >= _STRICT_KEYS_SINCE
                yield Finding(
                    level="error" if strict else "warning",
                    code="key-unknown",
                    what=f"{case.vllm} has no key {key!r} in --{setting.name}",
                    why="it refuses unknown keys" if strict else "it refuses or ignores unknown keys",
                    instead=_KEYS_MEANT.get((setting.name, key)) or " or ".join(near) or _some(sorted(known)),
                    source=WHEELS,
                    line=setting.line,
                )


def _keys(setting: Setting) -> list[str]:
    """Top-level keys of a JSON value, or the one behind the dot."""
    if setting.key:
        return [setting.key.split(".")[0]]
    try:
        value = json.loads(setting.text)
    except ValueError:
        return []
    return list(value) if isinstance(value, dict) else []


def tool_parsers(case: Case) -> Iterator[Finding]:
    """The parser takes any name; vLLM refuses unknown ones once tools are enabled."""
    setting = case.arguments.get("tool-call-parser")
    wants = case.arguments.get("enable-auto-tool-choice")
    misspelt = any(s.flag is None and s.word.startswith("--enable-auto-tool") for s in case.arguments.settings)
    enabled = misspelt or (wants is not None and not wants.negated)
    if enabled and setting is None:
        yield Finding(
            level="error",
            code="tool-parser-missing",
            what="--enable-auto-tool-choice needs --tool-call-parser",
            why="vLLM stops without it",
            instead=f"add --tool-call-parser {_parser_for(case) or 'NAME'}",
            source="vLLM's cli_args",
            line=wants.line if wants else case.launch.line,
        )
    names = case.vocabulary.tool_parsers
    if setting is None or not setting.known or not names or case.arguments.get("tool-parser-plugin"):
        return
    if setting.text not in names:
        why = "vLLM stops with KeyError: invalid tool call parser" if enabled else "it is not looked at, either"
        yield _unknown_parser(case, setting, "tool_parsers", names, why, "error" if enabled else "warning")
    if not enabled:
        yield Finding(
            level="warning",
            code="tool-parser-unused",
            what="--tool-call-parser does nothing without --enable-auto-tool-choice",
            instead="add --enable-auto-tool-choice",
            source="vLLM's cli_args",
            line=setting.line,
        )


def reasoning_parsers(case: Case) -> Iterator[Finding]:
    """Unknown reasoning parsers."""
    setting = case.arguments.get("reasoning-parser")
    names = case.vocabulary.reasoning_parsers
    if not setting or not setting.known or not names or case.arguments.get("reasoning-parser-plugin"):
        return
    # Older parsers state the choices themselves, and the flag's own rule has spoken.
    if setting.text not in names and not (setting.flag and setting.flag.choices):
        why = "vLLM stops with KeyError"
        yield _unknown_parser(case, setting, "reasoning_parsers", names, why, "error")


def _unknown_parser(case: Case, setting: Setting, kind: str, names: tuple[str, ...], why: str, level: str) -> Finding:
    life = case.releases.name_lifetime("tool_parsers" if kind == "tool_parsers" else "reasoning_parsers", setting.text)
    own = _parser_for(case) if kind == "tool_parsers" else None
    near = difflib.get_close_matches(setting.text, names, 3, 0.5)
    return Finding(
        level="error" if level == "error" else "warning",
        code="parser-unknown",
        what=f"{case.vllm} has no {'tool call' if kind == 'tool_parsers' else 'reasoning'} parser {setting.text!r}",
        why=f"{history(life)}; {why}" if life else why,
        instead=f"{setting.word} {own}" if own else f"one of {', '.join(near or names)}",
        source=WHEELS,
        line=setting.line,
    )


def _parser_for(case: Case) -> str | None:
    """The usual tool parser of the model's family, where this version has it."""
    name = case.model.short_name if case.model else ""
    found = (parser for family, parser in (*_FAMILY_PARSERS, *_LLAMA) if family in name)
    return next((parser for parser in found if parser in case.vocabulary.tool_parsers), None)


def ignored_false(case: Case) -> Iterator[Finding]:
    """``flag: false`` in vLLM's configuration file, which older versions pass over."""
    if case.launch.kind != "config":
        return
    for setting in case.arguments.settings:
        if not setting.negated or setting.word.startswith("--no-") or setting.flag is None:
            continue
        if case.version < _FALSE_COUNTS_SINCE and setting.flag.negatable:
            yield Finding(
                level="warning",
                code="false-ignored",
                what=f"{case.vllm} passes over `{setting.name}: false` in its configuration file",
                why="only true values become flags, so the default stands",
                instead=f"no-{setting.name}: true",
                source="vLLM's argparse_utils (a false value counts since a version between 0.27.1 and 0.28.0)",
                line=setting.line,
            )


def _finding(setting: Setting, code: str, what: str, why: str, instead: str) -> Finding:
    return Finding(level="error", code=code, what=what, why=why, instead=instead, line=setting.line)


RULES = (refused_values, broken_json, unknown_keys, tool_parsers, reasoning_parsers, ignored_false)
