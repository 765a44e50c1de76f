"""What the GPU's compute capability rules out.

The smallest capabilities are those of ``get_min_capability`` in vLLM's quantization layers and of
``supports_compute_capability`` in its attention backends.
"""

from collections.abc import Iterator

from packaging.version import Version

from autotune.check.case import Case, Finding

# fp8 and the Marlin kernels came to Turing (7.5) between 0.13.0 and 0.14.1.
_TURING_SINCE = Version("0.14")
_SMALLEST = {
    "fp8": 75, "gptq": 60, "gptq_marlin": 75, "awq": 75, "awq_marlin": 75, "auto_awq": 75, "auto_gptq": 60,
    "moe_wna16": 70, "experts_int8": 80, "fbgemm_fp8": 80, "mxfp4": 80, "torchao": 75, "humming": 75, "fp_quant": 100,
    "bitsandbytes": 70, "compressed-tensors": 70,
}  # fmt: skip
_MARLIN = ("fp8", "gptq_marlin", "awq_marlin")
_BACKENDS = {
    "FLASH_ATTN": ((8, 0), None),
    "FLASHINFER": ((8, 0), None),
    "FLASHMLA": ((9, 0), (10, 9)),
    "FLASH_ATTN_MLA": ((9, 0), (9, 9)),
    "FLASHINFER_MLA": ((10, 0), (10, 9)),
    "CUTLASS_MLA": ((10, 0), (10, 9)),
}
_FP8 = ("fp8", "fp8_e4m3", "fp8_e5m2")


def quantization_capability(case: Case) -> Iterator[Finding]:
    """A method whose kernels need a newer GPU."""
    setting = case.arguments.get("quantization")
    model = case.model
    method = setting.text if setting and setting.known else (model.quantization if model else None)
    if method is None or case.capability is None or case.device is None:
        return
    smallest = _SMALLEST.get(method, 0)
    if method in _MARLIN and case.version < _TURING_SINCE:
        smallest = 80
    if _number(case.capability) < smallest:
        yield Finding(
            level="error",
            code="gpu-too-old",
            what=f"quantization {method} needs compute capability {_shown(smallest)}, {case.device.name} has "
            f"{_shown(_number(case.capability))}",
            why="vLLM stops with: The quantization method is not supported for the current GPU",
            instead="another checkpoint, or a newer GPU",
            source="vLLM's quantization layers (get_min_capability)",
            line=setting.line if setting else case.launch.line,
        )
    elif method == "fp8" and _number(case.capability) < 89:
        yield Finding(
            level="advice",
            code="fp8-weights-only",
            what=f"fp8 on {case.device.name} saves memory, not computation",
            why="below compute capability 8.9 the weights are fp8 and the arithmetic is 16 bits (Marlin)",
            source="vLLM's quantization/fp8.py",
            line=setting.line if setting else case.launch.line,
        )


def bfloat16_capability(case: Case) -> Iterator[Finding]:
    """bfloat16 needs Ampere."""
    setting = case.arguments.get("dtype")
    if setting and setting.text == "bfloat16" and case.device and (case.capability or (9, 9)) < (8, 0):
        yield Finding(
            level="error",
            code="gpu-too-old",
            what=f"--dtype bfloat16 needs compute capability 8.0, {case.device.name} has "
            f"{_shown(_number(case.capability or (0, 0)))}",
            why="vLLM stops with a ValueError",
            instead="--dtype half, or leave it out",
            source="vLLM's platforms/cuda.py",
            line=setting.line,
        )


def backend_capability(case: Case) -> Iterator[Finding]:
    """An attention backend that does not run here, or not with the KV type."""
    setting = case.arguments.get("attention-backend")
    if setting is None or not setting.known or case.capability is None or case.device is None:
        return
    name = setting.text.upper()
    least, most = _BACKENDS.get(name, ((0, 0), None))
    kv = str(case.arguments.value("kv-cache-dtype") or "auto")
    here = f"{case.device.name} has {_shown(_number(case.capability))}"
    if case.capability < least or (most and case.capability > most):
        upto = f" to {most[0]}.x" if most else " or newer"
        what, why = f"{name} needs compute capability {least[0]}.{least[1]}{upto}, {here}", ""
    elif name == "FLASH_ATTN" and (kv == "fp8_e5m2" or (kv in _FP8 and case.capability[0] not in (9, 10))):
        what = f"FLASH_ATTN has no {kv} KV cache here"
        why = f"fp8 needs FlashAttention 3 (9.0) or 4 (10.x), {here}, and e5m2 is never taken"
    else:
        return
    yield Finding(
        level="error",
        code="backend-unsupported",
        what=what,
        why=why,
        instead=f"leave {setting.word} out: vLLM takes the best one that fits",
        source="vLLM's v1/attention/backends",
        line=setting.line,
    )


def kv_dtype_moves_backend(case: Case) -> Iterator[Finding]:
    """fp8 KV changes the attention backend on Ampere and Ada."""
    setting = case.arguments.get("kv-cache-dtype")
    if not setting or setting.text not in _FP8 or case.arguments.get("attention-backend") or not case.device:
        return
    if case.capability and case.capability[0] == 8 and case.version >= Version("0.24"):
        yield Finding(
            level="advice",
            code="kv-dtype-backend",
            what=f"--kv-cache-dtype {setting.text} moves {case.device.name} from FLASH_ATTN to FLASHINFER",
            why="FlashAttention 2 has no fp8 KV cache; the memory is halved, the speed may go either way",
            instead="measure it against the default",
            source="vLLM's platforms/cuda.py",
            line=setting.line,
        )


def block_size(case: Case) -> Iterator[Finding]:
    """Blocks that no backend takes."""
    setting = case.arguments.get("block-size")
    size = case.arguments.value("block-size")
    if not setting or not isinstance(size, int) or case.version < Version("0.24") or size <= 0:
        return
    if size % 16 and case.device and case.device.kind == "cuda":
        yield Finding(
            level="error",
            code="block-size",
            what=f"--block-size {size}: every attention backend for NVIDIA GPUs wants a multiple of 16",
            why="the parser takes any number, and no backend is left",
            instead="leave it out",
            source="vLLM's v1/attention/backends",
            line=setting.line,
        )


def _number(capability: tuple[int, int]) -> int:
    return capability[0] * 10 + capability[1]


def _shown(number: int) -> str:
    return f"{number // 10}.{number % 10}"


RULES = (
    quantization_capability,
    bfloat16_capability,
    backend_capability,
    kv_dtype_moves_backend,
    block_size,
)
