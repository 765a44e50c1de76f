"""What the stand-in is asked to do: read from ``FAKE_VLLM`` or the environment's file, cut down to this boot.

``FAKE_VLLM`` holds JSON, or ``@PATH`` of a JSON file; without it, ``behaviour.json`` in the virtual environment's
folder counts. The object holds any field of ``Behaviour``, and ``rules``: a list of such objects, each laid over the
rest where its conditions hold for this boot:

    when         flag (or ``env:NAME``) → value, list of values, null (not set) or comparison such as ``">=256"``
    times        only the first n boots (counted in files of the environment's folder)
    probability  by chance, drawn from the seed, the flags and the served name

An object with ``when``, ``times`` or ``probability`` at the top is itself one rule.
"""

import hashlib
import json
import operator
import os
import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

CONDITIONS = ("when", "times", "probability")
COMPARISONS = {
    ">=": operator.ge,
    "<=": operator.le,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}


@dataclass(frozen=True)
class Perf:
    """Seconds of one engine step: see ``perf.py``. ``factors``: flag → value as text → factor on the step."""

    step_s: float = 0.010
    per_seq_s: float = 0.0003
    per_prefill_token_s: float = 0.00002
    knee_seqs: int = 48
    per_seq_over_knee_s: float = 0.002
    factors: Mapping[str, Mapping[str, float]] = field(
        default_factory=lambda: {
            "enforce-eager": {"true": 1.3},
            "dtype": {"float32": 1.5, "float16": 2.5},
            "quantization": {"fp8": 0.8, "fp8_per_channel": 2.0},
            "async-scheduling": {"false": 1.05},
        }
    )


@dataclass(frozen=True)
class Memory:
    """The pretended device, in bytes, and what the engine takes of it."""

    total_bytes: int = 8 * 2**30
    free_bytes: int | None = None
    weights_bytes: int = 64 * 2**20
    per_batched_token_bytes: int = 64 * 2**10
    per_seq_bytes: int = 2**20
    graphs_bytes: int = 32 * 2**20
    per_token_bytes: int | None = None


@dataclass(frozen=True)
class Behaviour:
    """Every knob with its normal value. Times in seconds; ``*_after_tokens`` count generated tokens of the engine."""

    # Speed.
    perf: Perf = field(default_factory=Perf)
    memory: Memory = field(default_factory=Memory)
    platform: str = "cuda"
    time_scale: float = 1.0
    seed: int = 0
    boot_noise: float = 0.0
    step_noise: float = 0.0
    boot_s: Mapping[str, float] = field(default_factory=dict)
    # Boot.
    fail: str | None = None
    hang: str | None = None
    sigterm_in_start: str = "hang"
    workers: int = 0
    # Under load.
    fail_after_tokens: int = 0
    hang_after_tokens: int | None = None
    exit_after_s: float | None = None
    exit_code: int = 0
    linger_s: float = 0.2
    # Answers.
    slow_s: float = 0.0
    burst_s: float = 0.0
    short_output: float = 0.0
    lost_tokens: float = 0.0
    error_chunk: float = 0.0
    http_503: float = 0.0
    stop_early: float = 0.0
    served_as: str | None = None
    garbage: bool = False
    precision_noise: float = 0.0
    # Self-report.
    metrics_factor: float = 1.0
    no_metrics: bool = False
    health_lies: bool = False
    ignored_flags: tuple[str, ...] = ()
    # Ending.
    sigterm: str = "stop"
    sigint_stalls: bool = True
    orphan: bool = False
    life_s: int = 900
    orphan_life_s: int = 180


def load(flags: Mapping[str, object], environ: Mapping[str, str] = os.environ) -> Behaviour:
    """The behaviour of this boot. Unknown fields end the process with a plain message: a typo must not pass a test."""
    raw = _raw(environ)
    if any(key in raw for key in CONDITIONS):
        raw = {"rules": [raw]}
    rules = raw.pop("rules", [])
    for rule in rules:
        conditions = {key: rule[key] for key in CONDITIONS if key in rule}
        if _holds(conditions, rule, flags, environ, int(raw.get("seed", 0))):
            raw.update({key: value for key, value in rule.items() if key not in CONDITIONS})
    return _build(Behaviour, raw)


def _raw(environ: Mapping[str, str]) -> dict[str, Any]:
    text = environ.get("FAKE_VLLM", "")
    if text.startswith("@"):
        text = Path(text[1:]).read_text()
    file = Path(sys.prefix) / "behaviour.json"
    if not text and file.exists():
        text = file.read_text()
    return dict(json.loads(text or "{}"))


def _build(cls: type, raw: Mapping[str, Any]) -> Any:
    known = {f.name for f in fields(cls)}
    if unknown := set(raw) - known:
        raise SystemExit(f"FAKE_VLLM: unknown {cls.__name__} fields {sorted(unknown)}; known: {sorted(known)}")
    nested = {"perf": Perf, "memory": Memory}
    return cls(**{key: _build(nested[key], value) if key in nested else value for key, value in raw.items()})


def _holds(
    conditions: Mapping[str, Any],
    rule: Mapping[str, Any],
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    seed: int,
) -> bool:
    for name, wanted in conditions.get("when", {}).items():
        value = environ.get(name[4:]) if name.startswith("env:") else flags.get(name)
        if not matches(value, wanted):
            return False
    if "probability" in conditions and _draw(rule, flags, seed) >= conditions["probability"]:
        return False
    return "times" not in conditions or _count(rule) < conditions["times"]


def matches(value: object, wanted: object) -> bool:
    """Whether a flag's value meets a condition of ``when``."""
    if isinstance(wanted, list):
        return any(matches(value, one) for one in wanted)
    if isinstance(wanted, str):
        for sign, compare in COMPARISONS.items():
            if wanted.startswith(sign):
                return value is not None and bool(compare(float(str(value)), float(wanted[len(sign) :])))
        return str(value) == wanted
    return value == wanted


def _draw(rule: Mapping[str, Any], flags: Mapping[str, object], seed: int) -> float:
    return random.Random(f"{seed} {json.dumps(rule, sort_keys=True)} {identity(flags)}").random()


def identity(flags: Mapping[str, object]) -> str:
    """What tells this boot from others, for drawing lots: all flags but the port."""
    return str(sorted((name, str(value)) for name, value in flags.items() if name != "port"))


def _count(rule: Mapping[str, Any]) -> int:
    """How many boots this rule has struck before; this one is added."""
    name = hashlib.sha256(json.dumps(rule, sort_keys=True).encode()).hexdigest()[:12]
    folder = Path(sys.prefix) / "counts"
    folder.mkdir(exist_ok=True)
    with (folder / name).open("a+") as file:
        file.write(".")
        file.flush()
        return file.tell() - 1
