"""Predicted out of memory, with the numbers."""

from collections.abc import Iterator

from autotune.check.case import Case, Finding
from autotune.check.rules.model import quantization_mismatch
from autotune.engine.memory import MemoryModel, MemoryPrediction, default_utilization
from autotune.engine.memory_flags import MemoryFlags
from autotune.engine.model_shape import ModelShape
from autotune.space.config import LaunchConfig
from autotune.space.facts import GIB, DeviceFacts

# A prediction from the shape alone is trusted where it misses by more than this part of the device's memory.
_MARGIN = 0.04
# Overrides of the config.json hardly ever change its size, and a quantized checkpoint's method is in its size.
_IN_THE_SHAPE = ("hf-overrides", "quantization")
_LENGTHS = (131072, 65536, 40960, 32768, 16384, 8192, 4096)


def out_of_memory(case: Case) -> Iterator[Finding]:
    """Weights that do not fit, or that leave no room for one request of full length."""
    model, device = case.model, case.device
    if model is None or model.shape is None or device is None or device.kind != "cuda":
        return
    config = case.config.without(*_refused(case), *_IN_THE_SHAPE[: 1 if model.quantization is None else 2])
    if MemoryFlags.of(config).has_unknown_memory or config.get("dtype") in ("float", "float32"):
        return
    memory = MemoryModel(model.name, case.table.version, model.shape)
    guess = memory.predict(config, total_bytes=device.total_bytes)
    if guess.feasible is not False or guess.kv_bytes is None or guess.weights_bytes is None:
        return
    if config.get("max-model-len") == -1 and guess.kv_bytes > 0:
        return
    missing = -(guess.margin_bytes or 0)
    sure = guess.surely_impossible or guess.kv_bytes <= 0 or missing > _MARGIN * device.total_bytes
    yield Finding(
        level="error" if sure else "warning",
        code="out-of-memory",
        what=_what(guess, device, model.short_name),
        why=_sum(guess, config, device, case.table.version) + _context(guess, model.shape, config),
        instead=_instead(memory, config, device) or "more GPUs, a smaller model, or a quantized checkpoint",
        source=f"predicted from the model's shape ({model.source})",
        line=_line(case, guess),
    )


def _refused(case: Case) -> list[str]:
    """Settings that cannot be, so that they save no memory either."""
    kv = case.arguments.get("kv-cache-dtype")
    wrong_kv = kv is not None and case.table.why_not("kv-cache-dtype", kv.text) is not None
    wrong_method = any(True for _ in quantization_mismatch(case))
    return ["kv-cache-dtype"] * wrong_kv + ["quantization"] * wrong_method


def _what(guess: MemoryPrediction, device: DeviceFacts, name: str) -> str:
    weights = _gib(guess.weights_bytes or 0)
    if (guess.kv_bytes or 0) <= 0:
        return f"{name}'s weights take {weights} of {device.name}'s {_gib(device.total_bytes)}: nothing is left"
    return f"{_gib(guess.kv_bytes or 0)} of KV cache are too little for one request of full length"


def _sum(guess: MemoryPrediction, config: LaunchConfig, device: DeviceFacts, version: str) -> str:
    share = config.get("gpu-memory-utilization")
    used = float(share) if isinstance(share, int | float) else default_utilization(version)
    budget = _gib(round(device.total_bytes * used))
    weights, overhead, kv = (_gib(part or 0) for part in (guess.weights_bytes, guess.overhead_bytes, guess.kv_bytes))
    return f"{budget} budget ({used:g} of {_gib(device.total_bytes)}) - {weights} weights - {overhead} overhead = {kv}"


def _context(guess: MemoryPrediction, shape: ModelShape, config: LaunchConfig) -> str:
    length = config.get("max-model-len") or shape.max_length
    if guess.margin_bytes is None or guess.kv_bytes is None or not isinstance(length, int):
        return ""
    return f"; a request of {length:,} tokens needs {_gib(guess.kv_bytes - guess.margin_bytes)} of KV cache"


def _instead(memory: MemoryModel, config: LaunchConfig, device: DeviceFacts) -> str:
    """The least change that fits: a shorter context, more GPUs, or weights of 8 bits."""
    asked = config.get("max-model-len")
    lengths = [length for length in _LENGTHS if not isinstance(asked, int) or length < asked]
    if length := _longest(memory, config, device, lengths):
        return f"--max-model-len {length}"
    plain = config.get("quantization") is None and memory.shape is not None and memory.shape.quantization is None
    if plain:
        fp8 = config.merged(LaunchConfig.of({"quantization": "fp8"}))
        if _fits(memory, fp8, device):
            return "--quantization fp8 (changes precision), or more GPUs"
        if length := _longest(memory, fp8, device, [n for n in lengths if n in _LENGTHS[2:]]):
            return f"--quantization fp8 --max-model-len {length} (changes precision), or more GPUs"
    for size in (2, 4, 8):
        if _fits(memory, config.merged(LaunchConfig.of({"tensor-parallel-size": size})), device):
            return f"--tensor-parallel-size {size}"
    return ""


def _longest(memory: MemoryModel, config: LaunchConfig, device: DeviceFacts, lengths: list[int]) -> int | None:
    """The first of ``lengths``, longest first, with which the configuration fits."""
    fitting = (n for n in lengths if _fits(memory, config.merged(LaunchConfig.of({"max-model-len": n})), device))
    return next(fitting, None)


def _fits(memory: MemoryModel, config: LaunchConfig, device: DeviceFacts) -> bool:
    guess = memory.predict(config, total_bytes=device.total_bytes)
    return guess.feasible is True and (guess.margin_bytes or 0) > _MARGIN * device.total_bytes / 2


def _line(case: Case, guess: MemoryPrediction) -> int:
    if (guess.kv_bytes or 0) > 0:
        return case.line_of("max-model-len")
    return case.arguments.model.line if case.arguments.model else case.launch.line


def _gib(count: int) -> str:
    return f"{count / GIB:.1f} GiB"


RULES = (out_of_memory,)
