"""Settings that the model itself contradicts."""

from collections.abc import Iterator

from packaging.version import Version

from autotune.check.case import WHEELS, Case, Finding, history
from autotune.check.context import YARN_IS_SCALED_SINCE, allowed_context, yarn_override
from autotune.engine.flags import number_of

# Methods that quantize a plain checkpoint while it is loaded; all others need a checkpoint made for them.
_ONLINE = ("fp8", "fp8_per", "mxfp8", "int8_per", "nvfp4_per", "experts_int8", "bitsandbytes", "torchao", "deepspeedfp")
_ONLINE_TOO = ("ptpc_fp8", "rtn", "tpu_int8", "inc", "humming", "neuron_quant", "quark_online")
# Names of one and the same method.
_SAME = (
    {"gptq", "gptq_marlin", "auto_gptq", "gptq_bitblas", "gptq_marlin_24", "marlin"},
    {"awq", "awq_marlin", "auto_awq", "moe_wna16"},
    {"gptq", "moe_wna16"},
    {"fp8", "fbgemm_fp8", "ptpc_fp8"},
    {"modelopt", "modelopt_fp4", "modelopt_mixed", "modelopt_mxfp8"},
)
_MOE_ONLY = ("enable-expert-parallel", "enable-eplb", "moe-backend", "all2all-backend", "enable-dbo")


def context_too_long(case: Case) -> Iterator[Finding]:
    """More tokens than the model was made for."""
    wanted = case.arguments.value("max-model-len")
    model = case.model
    limit = allowed_context(model.config, case.arguments, case.version) if model else None
    if model is None or limit is None or not isinstance(wanted, int) or isinstance(wanted, bool):
        return
    if wanted <= limit.tokens:
        return
    why = f"{model.short_name} allows {limit.tokens:,} tokens (max_position_embeddings, from {model.source})"
    if limit.scaling == "yarn" and case.version >= YARN_IS_SCALED_SINCE:
        why += "; since vLLM 0.30 YaRN's factor no longer stretches it, max_position_embeddings has to be set as well"
    allowed = dict(case.config.env).get("VLLM_ALLOW_LONG_MAX_MODEL_LEN") in ("1", "true", "True")
    if allowed:
        why += "; VLLM_ALLOW_LONG_MAX_MODEL_LEN lets it start, and positions beyond the limit can give NaN"
    override = yarn_override(model.config, wanted, case.version)
    yield Finding(
        level="warning" if allowed else "error",
        code="context-too-long",
        what=f"--max-model-len {wanted:,} is more than the model's {limit.tokens:,}",
        why=why,
        instead=f"--max-model-len {limit.tokens}, or rope scaling: {override}",
        source="vLLM's config/model.py",
        line=case.line_of("max-model-len"),
    )


def quantization_mismatch(case: Case) -> Iterator[Finding]:
    """A method that the checkpoint was not made for."""
    setting = case.arguments.get("quantization")
    model = case.model
    if setting is None or not setting.known or model is None or not model.quantization_known:
        return
    wanted, there = setting.text, model.quantization
    if there is None and not _is_online(wanted):
        what = f"--quantization {wanted} needs a checkpoint that is quantized so; {model.short_name} is not"
        why = f"no quantization_config in its config.json (from {model.source})"
        instead = (
            f"a {wanted.split('_')[0].upper()} checkpoint of the model, or --quantization fp8 to quantize while loading"
        )
    elif there is not None and there != wanted and not any({there, wanted} <= names for names in _SAME):
        what = f"--quantization {wanted}, but {model.short_name} is quantized with {there}"
        why = f"the checkpoint's own method must be used (from {model.source})"
        instead = "leave --quantization out: vLLM reads the method from the checkpoint"
    else:
        return
    yield Finding(
        level="error",
        code="quantization-mismatch",
        what=what,
        why=why,
        instead=instead,
        source="vLLM's config/model.py",
        line=setting.line,
    )


def _is_online(method: str) -> bool:
    return method in _ONLINE_TOO or any(method == name or method.startswith(f"{name}_") for name in _ONLINE)


def model_unknown(case: Case) -> Iterator[Finding]:
    """An architecture that this vLLM does not have: too new, dropped, or never supported."""
    model, names = case.model, case.vocabulary.architectures
    name = model.facts.architecture if model else ""
    if model is None or not name or not names or name in names:
        return
    life = case.releases.name_lifetime("architectures", name)
    fallback = any(known.startswith("Transformers") for known in names)
    newer = life is not None and Version(life.first) > case.version
    yield Finding(
        level="warning" if fallback else "error",
        code="model-too-new" if newer else "model-unsupported",
        what=f"{case.vllm} has no {name}, the architecture of {model.short_name}",
        why=history(life)
        + ("; it may run through Transformers, slower, if the installed Transformers knows it" if fallback else ""),
        instead=f"vLLM {life.first} or newer" if life and newer else "another vLLM version or another model",
        source=WHEELS,
        line=case.arguments.model.line if case.arguments.model else case.launch.line,
    )


def heads_divide(case: Case) -> Iterator[Finding]:
    """Tensor parallelism that the heads cannot be shared out to."""
    size = case.arguments.value("tensor-parallel-size")
    heads = case.model.facts.heads if case.model else None
    if isinstance(size, int) and heads and size > 1 and heads % size:
        fitting = [str(n) for n in range(1, 17) if heads % n == 0]
        yield Finding(
            level="error",
            code="heads-not-divisible",
            what=f"{heads} attention heads cannot be shared by {size} GPUs",
            why="every GPU of --tensor-parallel-size holds the same number of heads",
            instead=f"--tensor-parallel-size {', '.join(fitting[:-1])} or {fitting[-1]}",
            source="vLLM's config/model.py",
            line=case.line_of("tensor-parallel-size"),
        )


def expert_settings(case: Case) -> Iterator[Finding]:
    """Settings for mixtures of experts on a model without any."""
    if case.model is None or not case.model.config or case.model.facts.moe:
        return
    for name in _MOE_ONLY:
        setting = case.arguments.get(name)
        if setting and not setting.negated:
            yield Finding(
                level="warning",
                code="no-effect",
                what=f"{setting.word} does nothing: {case.model.short_name} has no experts",
                why=f"its config.json names none (from {case.model.source})",
                instead="leave it out",
                line=setting.line,
            )


def half_precision(case: Case) -> Iterator[Finding]:
    """float16 for weights that were trained in bfloat16."""
    setting = case.arguments.get("dtype")
    if not setting or setting.text not in ("half", "float16") or case.model is None:
        return
    if case.model.facts.dtype == "bfloat16" and (case.capability or (9, 0)) >= (8, 0):
        yield Finding(
            level="advice",
            code="dtype-narrower",
            what=f"--dtype {setting.text} casts bfloat16 weights to float16",
            why="float16 ends at 65,504: activations of such models can overflow, and it is not faster",
            instead="leave --dtype out",
            source="the formats' ranges (IEEE 754 half precision, bfloat16)",
            line=setting.line,
        )


def kv_dtype_differs(case: Case) -> Iterator[Finding]:
    """Since 0.33 an explicit 16-bit KV type must be the model's."""
    setting = case.arguments.get("kv-cache-dtype")
    if not setting or setting.text not in ("float16", "bfloat16") or case.version < Version("0.33"):
        return
    asked = str(case.arguments.value("dtype") or "auto")
    own = {"half": "float16"}.get(asked, asked)
    own = (case.model.facts.dtype if case.model and own == "auto" else own) or "auto"
    if own in ("float16", "bfloat16") and own != setting.text:
        yield Finding(
            level="error",
            code="kv-dtype-differs",
            what=f"--kv-cache-dtype {setting.text} differs from the model's {own}",
            why="vLLM 0.33 refuses it; 0.32 took it",
            instead="--kv-cache-dtype auto",
            source="vLLM's config/vllm.py",
            line=setting.line,
        )


def long_context_number(case: Case) -> Iterator[Finding]:
    """``--max-model-len 128`` where 128k was meant."""
    setting = case.arguments.get("max-model-len")
    number = number_of(setting.text) if setting and setting.known else None
    if setting and number is not None and number == int(number) and 0 < number < 256:
        yield Finding(
            level="warning",
            code="context-tiny",
            what=f"--max-model-len {setting.text} is {number:.0f} tokens",
            instead=f"--max-model-len {setting.text}k, if thousands are meant",
            line=setting.line,
        )


RULES = (
    context_too_long,
    quantization_mismatch,
    model_unknown,
    heads_divide,
    expert_settings,
    half_precision,
    kv_dtype_differs,
    long_context_number,
)
