"""Settings that contradict each other, or that another one makes useless."""

import math
from collections.abc import Iterator

from packaging.version import Version

from autotune.check.arguments import Setting
from autotune.check.case import Case, Finding
from autotune.space.defaults import SEQS, TOKENS

_GRAPH_FLAGS = ("max-cudagraph-capture-size", "cudagraph-capture-sizes", "cuda-graph-sizes", "max-seq-len-to-capture")


def batch_limits(case: Case) -> Iterator[Finding]:
    """A step's token budget must have room for one token of every sequence."""
    seqs, tokens = case.defaults.batch(case.config)
    if not isinstance(seqs, int) or not isinstance(tokens, int) or tokens >= seqs:
        return
    own = {name: case.arguments.get(name) is not None for name in (SEQS, TOKENS)}
    shown = {name: f"--{name} {value}" if own[name] else f"the default --{name} {value}"
             for name, value in ((SEQS, seqs), (TOKENS, tokens))}  # fmt: skip
    yield Finding(
        level="error",
        code="budget-below-sequences",
        what=f"{shown[TOKENS]} is less than {shown[SEQS]}",
        why="a decode step needs one token for each sequence; vLLM stops with a ValueError",
        instead=f"--{TOKENS} {max(2048, seqs)}, or fewer sequences",
        source="vLLM's config/scheduler.py",
        line=case.line_of(TOKENS, SEQS),
    )


def whole_prompts(case: Case) -> Iterator[Finding]:
    """Without chunked prefill a whole prompt must fit into one step."""
    chunked = case.arguments.get("enable-chunked-prefill")
    tokens, length = case.arguments.value(TOKENS), _length(case)
    if not chunked or not chunked.negated or not isinstance(tokens, int) or not isinstance(length, int):
        return
    if tokens < length:
        yield Finding(
            level="error",
            code="budget-below-context",
            what=f"without chunked prefill --{TOKENS} {tokens:,} cannot take a prompt of {length:,} tokens",
            why="vLLM stops with a ValueError",
            instead=f"leave {chunked.word} out",
            source="vLLM's config/scheduler.py",
            line=chunked.line,
        )


def _length(case: Case) -> object:
    return case.arguments.value("max-model-len") or (case.model and case.model.facts.max_position_embeddings)


def active_limit(case: Case) -> Iterator[Finding]:
    """The admission limit may not exceed the sequences that buffers exist for."""
    active = case.arguments.value("max-num-active-seqs")
    seqs, _ = case.defaults.batch(case.config)
    if isinstance(active, int) and isinstance(seqs, int) and active > seqs:
        yield Finding(
            level="error",
            code="active-above-sequences",
            what=f"--max-num-active-seqs {active} is more than --max-num-seqs {seqs}",
            why="vLLM stops with a ValueError",
            instead=f"--max-num-active-seqs {seqs} or less",
            source="vLLM's config/scheduler.py",
            line=case.line_of("max-num-active-seqs"),
        )


def eager_and_graphs(case: Case) -> Iterator[Finding]:
    """``--enforce-eager`` switches off what these set up."""
    eager = case.arguments.get("enforce-eager")
    if eager is None or eager.negated:
        return
    useless = [s for name in _GRAPH_FLAGS if (s := case.arguments.get(name))]
    level = case.arguments.get("optimization-level")
    useless += [level] if level and level.text not in ("", "0") else []
    compilation = case.arguments.nested("compilation-config")
    mode = str(compilation.get("cudagraph_mode", "NONE")).upper()
    if mode != "NONE" or compilation.get("mode", compilation.get("level", 0)) not in (0, "0", "NONE"):
        useless += [s for s in case.arguments.settings if s.flag and s.flag.name == "compilation-config"][:1]
    for setting in useless:
        yield _useless(setting, "--enforce-eager switches compilation and CUDA graphs off", "drop one of the two")


def memory_limits(case: Case) -> Iterator[Finding]:
    """A fixed KV size makes the utilization useless."""
    fixed, share = case.arguments.get("kv-cache-memory-bytes"), case.arguments.get("gpu-memory-utilization")
    if fixed and share:
        yield _useless(share, f"{fixed.word} sets the KV cache's size by itself", "drop one of the two")


def gpu_count(case: Case) -> Iterator[Finding]:
    """More workers than the container, or CUDA_VISIBLE_DEVICES, gives GPUs to."""
    sizes = [case.arguments.value(name) or 1 for name in ("tensor-parallel-size", "pipeline-parallel-size")]
    workers = math.prod(size for size in sizes if isinstance(size, int))
    visible = dict(case.launch.env).get("CUDA_VISIBLE_DEVICES")
    listed = len(visible.text.split(",")) if visible and visible.whole and visible.text.strip() else None
    given = min((count for count in (case.launch.gpus, listed) if count is not None), default=None)
    if given is not None and workers > given and case.arguments.get("distributed-executor-backend") is None:
        yield Finding(
            level="error",
            code="gpus-too-few",
            what=f"tensor and pipeline parallelism want {workers} GPUs, not the {given} given",
            why="every worker needs a GPU of its own",
            instead=f"{workers} GPUs (resources, --gpus, CUDA_VISIBLE_DEVICES), or smaller sizes",
            line=case.line_of("tensor-parallel-size", "pipeline-parallel-size"),
        )


def fixed_blocks(case: Case) -> Iterator[Finding]:
    """A number of blocks overrides what the memory would hold."""
    blocks = case.arguments.get("num-gpu-blocks-override")
    if blocks:
        yield Finding(
            level="warning",
            code="blocks-overridden",
            what=f"{blocks.word} {blocks.text} replaces the KV cache size that vLLM measured",
            why="it exists for tests; too many blocks run out of memory, too few waste it",
            instead="leave it out, or --kv-cache-memory-bytes",
            source="vLLM's config/cache.py",
            line=blocks.line,
        )


def speculation_budget(case: Case) -> Iterator[Finding]:
    """Draft tokens take part of every step's budget."""
    setting = case.arguments.get("speculative-config") or case.arguments.get("spec-method")
    _, tokens = case.defaults.batch(case.config)
    if setting and isinstance(tokens, int) and tokens < 8192 and case.version >= Version("0.24"):
        own = case.arguments.get(TOKENS) is not None
        yield Finding(
            level="advice",
            code="speculation-budget",
            what=f"speculative decoding with {'' if own else 'the default '}--{TOKENS} {tokens}",
            why="draft tokens come out of the same budget, and vLLM warns below 8192",
            instead=f"--{TOKENS} 8192 or more",
            source="vLLM's config/vllm.py",
            line=setting.line,
        )


def sliding_prefix(case: Case) -> Iterator[Finding]:
    """A hash algorithm for a prefix cache that is off."""
    cache, algorithm = case.arguments.get("enable-prefix-caching"), case.arguments.get("prefix-caching-hash-algo")
    if cache and cache.negated and algorithm:
        yield _useless(algorithm, f"{cache.word} switches prefix caching off", "drop one of the two")


def backend_and_variable(case: Case) -> Iterator[Finding]:
    """Two ways to choose a backend, which may differ."""
    flag = case.arguments.get("attention-backend")
    word = dict(case.launch.env).get("VLLM_ATTENTION_BACKEND")
    if flag and word and word.whole and word.text.upper() != flag.text.upper():
        yield Finding(
            level="warning",
            code="backend-twice",
            what=f"VLLM_ATTENTION_BACKEND={word.text} and {flag.word} {flag.text}",
            why="the flag counts",
            instead="drop the variable",
            line=word.line,
        )


def _useless(setting: Setting, why: str, instead: str) -> Finding:
    return Finding(
        level="warning",
        code="no-effect",
        what=f"{setting.word} has no effect",
        why=why,
        instead=instead,
        line=setting.line,
    )


RULES = (
    batch_limits,
    whole_prompts,
    active_limit,
    eager_and_graphs,
    memory_limits,
    gpu_count,
    fixed_blocks,
    speculation_budget,
    sliding_prefix,
    backend_and_variable,
)
