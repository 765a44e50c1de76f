"""What a vLLM log tells about a boot: its phases, and the numbers that it prints.

Two tables say which words start a phase and which words hold a fact; both hold for vLLM 0.6 to 0.33,
because they match messages, never file names or line numbers. Phases only move forward, as the order of
``BootPhase``; a new boot in the same log (its "non-default args" line) starts over. Of several workers
the one with the least room counts: the smallest KV cache, the largest weights.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from typing import Any

from autotune.engine.log_lines import LogLine

GIB = 1 << 30


class BootPhase(StrEnum):
    """Phases of an engine's life, in their order."""

    IMPORTS = "imports"
    CONFIG = "config"
    WEIGHTS = "weights"
    COMPILE = "compile"
    PROFILE = "profile"
    GRAPHS = "graphs"
    SERVER = "server"
    READY = "ready"
    SERVING = "serving"
    STOPPING = "stopping"

    @property
    def rank(self) -> int:
        """Position in the order of a boot, from 0."""
        return _RANKS[self]


_RANKS = {phase: rank for rank, phase in enumerate(BootPhase)}


@dataclass(frozen=True, slots=True, kw_only=True)
class BootFacts:
    """What one boot printed; None (or empty) where it printed nothing.

    Memory is in bytes, as exact as vLLM prints it (two decimals of a GiB). ``phases_s`` holds the seconds
    from the first line of a phase to the first line of the next one, by the log's own clock (whole
    seconds); the start of the engine's processes counts as config, because no line separates the two.
    ``compile_cached`` is True for a hot compile cache, False for a cold one. ``kv_limit_bytes`` is the
    ``--kv-cache-memory-bytes`` that was set. ``suggested_kv_bytes`` are vLLM's ``--kv-cache-memory=`` hints.
    """

    vllm_version: str | None = None
    model: str | None = None
    phase: BootPhase = BootPhase.IMPORTS
    ready: bool = False
    phases_s: Mapping[BootPhase, float] = field(default_factory=dict)
    non_default_args: Mapping[str, str] = field(default_factory=dict)
    architecture: str | None = None
    enforce_eager: bool | None = None
    max_model_len: int | None = None
    chunked_prefill_tokens: int | None = None
    quantization: str | None = None
    quantized_layers: int | None = None
    dtype: str | None = None
    kv_cache_dtype: str | None = None
    model_runner: str | None = None
    attention_backend: str | None = None
    weights_bytes: int | None = None
    weights_load_s: float | None = None
    compile_s: float | None = None
    compile_cached: bool | None = None
    available_kv_bytes: int | None = None
    kv_limit_bytes: int | None = None
    kv_tokens: int | None = None
    max_concurrency: float | None = None
    graphs_bytes: int | None = None
    graphs_s: float | None = None
    consumed_bytes: int | None = None
    peak_activation_bytes: int | None = None
    total_device_bytes: int | None = None
    free_at_start_bytes: int | None = None
    suggested_kv_bytes: tuple[int, ...] = ()
    init_engine_s: float | None = None

    @property
    def kv_bytes(self) -> int | None:
        """Bytes of the KV cache: exact where they were set, else as printed."""
        return self.kv_limit_bytes if self.kv_limit_bytes is not None else self.available_kv_bytes


def _gib(text: str) -> int:
    return round(float(text) * GIB)


def _count(text: str) -> int:
    return int(text.replace(",", ""))


def _first(old: Any, new: Any) -> Any:
    return new if old is None else old


def _last(_old: Any, new: Any) -> Any:
    return new


def _least(old: Any, new: Any) -> Any:
    return new if old is None else min(old, new)


def _most(old: Any, new: Any) -> Any:
    return new if old is None else max(old, new)


@dataclass(frozen=True, slots=True)
class _Fact:
    """A field, the words that must occur, the pattern that holds the value, and how two values merge."""

    name: str
    needle: str
    regex: re.Pattern[str]
    convert: Callable[[str], Any]
    merge: Callable[[Any, Any], Any]


def _fact(name: str, needle: str, regex: str, convert: Callable[[str], Any] = str, merge: Any = _first) -> _Fact:
    return _Fact(name, needle, re.compile(regex), convert, merge)


_FACTS = (
    _fact("vllm_version", "API server version", r"API server version (\S+)"),
    _fact("vllm_version", "  version ", r"\u2588.*  version (\S+)"),
    _fact("vllm_version", "Initializing a", r"LLM engine \(v([^)\s]+)\)"),
    _fact("model", "with config: model=", r"with config: model='([^']+)'"),
    _fact("enforce_eager", "enforce_eager=", r"enforce_eager=(True|False)", lambda word: word == "True"),
    _fact("enforce_eager", "'enforce_eager': True", r"'enforce_eager': (True)", lambda word: word == "True"),
    _fact("quantization", "quantization=", r"\bquantization=([^,\s]+)", lambda word: None if word == "None" else word),
    _fact("quantized_layers", "Quantizing ", r"Quantizing (\d+) layers", int),
    _fact("dtype", "dtype=torch.", r"\bdtype=torch\.(\w+)"),
    _fact("kv_cache_dtype", "kv_cache_dtype=", r"kv_cache_dtype=([^,\s]+)"),
    _fact("architecture", "Resolved architecture:", r"Resolved architecture: (\S+)"),
    _fact("max_model_len", "max model len", r"Using max model len (\d+)", int),
    _fact("max_model_len", "max_seq_len=", r"max_seq_len=(\d+)", int),
    _fact("chunked_prefill_tokens", "Chunked prefill", r"max_num_batched_tokens=(\d+)", int),
    _fact("model_runner", "V2 Model Runner", r"Using (V2) Model Runner"),
    _fact("model_runner", "model runner instead", r"using the (V\d) model runner instead"),
    _fact("attention_backend", "ackend", r"^Using (?:AttentionBackendEnum\.)?([\w/ -]+?)(?: attention)? backend\b"),
    _fact("weights_bytes", "eights took", r"odel weights took ([\d.]+) Gi?B", _gib, _most),
    _fact("weights_bytes", "Model loading took", r"Model loading took ([\d.]+) Gi?B", _gib, _most),
    _fact("weights_load_s", "oading weights took", r"oading weights took ([\d.]+) s", float, _most),
    _fact("compile_s", "torch.compile t", r"torch\.compile t(?:ook|akes) ([\d.]+) s in total", float, _most),
    _fact("compile_cached", "Directly load", r"Directly load (the compiled|AOT)", bool),
    _fact("compile_cached", "Compiling a graph", r"(Compiling a graph)", lambda _: False, _last),
    _fact("compile_cached", "saved AOT compiled", r"(saved AOT compiled)", lambda _: False, _last),
    _fact("available_kv_bytes", "Available KV", r"Available KV cache memory: (-?[\d.]+) GiB", _gib, _least),
    _fact("available_kv_bytes", "GiB for KV cache", r"set \((-?[\d.]+)/[\d.]+\) GiB for KV cache", _gib, _least),
    _fact("available_kv_bytes", "memory for KV Cache", r"reserved ([\d.]+) GiB memory for KV Cache", _gib, _least),
    _fact("total_device_bytes", "GiB for KV cache", r"set \(-?[\d.]+/([\d.]+)\) GiB for KV cache", _gib),
    _fact("kv_limit_bytes", "'kv_cache_memory_bytes': ", r"'kv_cache_memory_bytes': (\d+)", int),
    _fact("kv_tokens", "KV cache size:", r"KV cache size: ([\d,]+) tokens", _count, _least),
    _fact("max_concurrency", "Maximum concurrency", r"tokens per request: ([\d.]+)x", float, _least),
    _fact("graphs_bytes", "Graph capturing finished", r"took (-?[\d.]+) GiB", _gib, _last),
    _fact("graphs_s", "Graph capturing finished", r"finished in (\d+) secs", float, _last),
    _fact("free_at_start_bytes", "Free memory on device", r"\(([\d.]+)/[\d.]+ GiB\) on startup", _gib, _least),
    _fact("total_device_bytes", "Free memory on device", r"\([\d.]+/([\d.]+) GiB\) on startup", _gib),
    _fact("consumed_bytes", "Actual usage is", r"Actual usage is ([\d.]+) GiB for consumed", _gib, _most),
    _fact("peak_activation_bytes", "peak activation", r"([\d.]+) GiB for peak activation", _gib, _most),
    _fact("init_engine_s", "init engine (", r"init engine \(.*?\) took ([\d.]+) s", float, _most),
)

_CONFIG, _WEIGHTS, _COMPILE, _PROFILE, _GRAPHS, _SERVER, _READY, _SERVING, _STOPPING = list(BootPhase)[1:]
_NEW_BOOT = "non-default args:"

# The words that start a phase. The second column of weights is what ends them: compile or profile follows.
_BOOT_PHASES: tuple[tuple[str, BootPhase], ...] = (
    (_NEW_BOOT, _CONFIG),
    ("API server version", _CONFIG),
    ("Resolved architecture", _CONFIG),
    ("Using max model len", _CONFIG),
    ("Initializing a V", _CONFIG),
    ("Initializing an LLM engine", _CONFIG),
    ("Starting to load model", _WEIGHTS),
    ("Loading model from scratch", _WEIGHTS),
    ("Loading weights took", _WEIGHTS),
    ("Loading safetensors checkpoint shards", _WEIGHTS),
    ("Time spent downloading weights", _WEIGHTS),
    ("Model loading took", _COMPILE),
    ("model weights took", _COMPILE),
    ("KV cache layout", _COMPILE),
    ("for vLLM's torch.compile", _COMPILE),
    ("Dynamo bytecode transform", _COMPILE),
    ("Compiling a graph for", _COMPILE),
    ("Directly load ", _COMPILE),
    ("Warming up model for the compilation", _COMPILE),
    ("Warming up done", _PROFILE),
    ("torch.compile took", _PROFILE),
    ("torch.compile takes", _PROFILE),
    ("Initial profiling/warmup run", _PROFILE),
    ("Profiling CUDA graph memory", _PROFILE),
    ("Memory profiling takes", _PROFILE),
    ("Available KV cache memory", _PROFILE),
    ("KV cache size:", _PROFILE),
    ("GPU blocks: ", _PROFILE),
    ("GiB for KV cache", _PROFILE),
    ("Capturing CUDA graph", _GRAPHS),
    ("Capturing cudagraphs", _GRAPHS),
    ("Capturing the model for CUDA graphs", _GRAPHS),
    ("Graph capturing finished", _GRAPHS),
    ("init engine (", _SERVER),
    ("Supported tasks:", _SERVER),
    ("Starting vLLM ", _SERVER),
    ("Available routes are", _SERVER),
    ("Started server process", _SERVER),
    ("Application startup complete", _READY),
)
_LIFE_PHASES: tuple[tuple[str, BootPhase], ...] = (
    ("Avg prompt throughput", _SERVING),
    ('"POST /', _SERVING),
    ("API server: shutdown triggered", _STOPPING),
    ("Shutting down", _STOPPING),
    ("trigger received signal=", _STOPPING),
)
_AFTER_BOOT = (*_LIFE_PHASES, (_NEW_BOOT, _CONFIG))
_DURING_BOOT = (*_BOOT_PHASES, *_LIFE_PHASES)
_SUGGESTION = re.compile(r"--kv-cache-memory=(\d+)")
_SECRET = re.compile(r"(^|_)(api_key|hf_token|password|secret)s?$")
_ARGUMENT = re.compile(r"'(\w+)': ('[^']*'|\{[^{}]*\}|\[[^\[\]]*\]|[^,{}\[\]]+)(?=[,}])")


def _public(name: str, value: str) -> str:
    return "***" if _SECRET.search(name) else value


class BootReader:
    """Follows one log line by line. ``phase`` and ``facts()`` may be asked at any moment."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.phase = BootPhase.IMPORTS
        self.weights_done = self.kv_sized = self.graphs_done = False
        self._values: dict[str, Any] = {}
        self._arguments: dict[str, str] = {}
        self._suggestions: tuple[int, ...] = ()
        self._entered: dict[BootPhase, str] = {}
        self._clock = ""

    @property
    def ready(self) -> bool:
        """Whether the server was up (it may be stopping by now)."""
        return _READY in self._entered or _SERVING in self._entered

    @property
    def eager(self) -> bool:
        """Whether the boot said that it captures no graphs."""
        return self._values.get("enforce_eager") is True

    def feed(self, line: LogLine) -> None:
        """Take one line into account. Errors carry neither phases nor facts, warnings no phases."""
        self._clock = line.time or self._clock
        if line.level in ("ERROR", "CRITICAL"):
            return
        text = line.text
        if self.phase.rank >= _READY.rank:
            if _NEW_BOOT in text:
                self._begin()
            self._enter_phase(line, _AFTER_BOOT)
            if self.phase.rank >= _READY.rank:
                return
        if line.level != "WARNING":
            self._enter_phase(line, _DURING_BOOT)
        if line.level is not None:
            self._take_facts(text)

    def _enter_phase(self, line: LogLine, table: tuple[tuple[str, BootPhase], ...]) -> None:
        for words, phase in table:
            if words in line.text:
                self._note_progress(words, phase)
                self._advance(_PROFILE if phase is _COMPILE and self.eager else phase)
                return

    def _note_progress(self, words: str, phase: BootPhase) -> None:
        if phase is _COMPILE or phase.rank > _COMPILE.rank:
            self.weights_done = True
        if words in ("Available KV cache memory", "KV cache size:", "GiB for KV cache", "GPU blocks: "):
            self.kv_sized = True
        if words == "Graph capturing finished" and self.kv_sized:
            self.graphs_done = True

    def _advance(self, phase: BootPhase) -> None:
        # A trial capture before the KV cache is sized belongs to profiling.
        if phase is _GRAPHS and not self.kv_sized:
            phase = _PROFILE
        if phase.rank >= self.phase.rank:
            self.phase = phase
            self._entered.setdefault(phase, self._clock)

    def _take_facts(self, text: str) -> None:
        for fact in _FACTS:
            if fact.needle in text and (match := fact.regex.search(text)):
                value = fact.convert(match[1])
                self._values[fact.name] = fact.merge(self._values.get(fact.name), value)
        if _NEW_BOOT in text:
            self._arguments = {name: _public(name, value.strip("'")) for name, value in _ARGUMENT.findall(text)}
        elif "--kv-cache-memory=" in text:
            self._suggestions = tuple(int(number) for number in _SUGGESTION.findall(text))

    def facts(self) -> BootFacts:
        """Everything that the log printed so far."""
        return BootFacts(
            phase=self.phase,
            ready=self.ready,
            phases_s=_durations(self._entered),
            non_default_args=dict(self._arguments),
            suggested_kv_bytes=self._suggestions,
            **self._values,
        )


def _durations(entered: Mapping[BootPhase, str]) -> dict[BootPhase, float]:
    times = [(phase, seconds) for phase, text in entered.items() if (seconds := clock_s(text)) is not None]
    times.sort(key=lambda pair: pair[0].rank)
    pairs = pairwise(times)
    return {phase: _elapsed(start, end) for (phase, start), (_, end) in pairs}


def clock_s(text: str | None) -> float | None:
    """Seconds since the start of the (leap) year for ``MM-DD HH:MM:SS``; None where it is no such time."""
    try:
        moment = datetime.strptime(f"2000-{text}", "%Y-%m-%d %H:%M:%S")
    except ValueError:
        return None
    return (moment - datetime(2000, 1, 1)).total_seconds()


def _elapsed(start: float, end: float) -> float:
    year = timedelta(days=366).total_seconds()
    return end - start if end >= start else max(0.0, end - start + year if start - end > year / 2 else 0.0)
