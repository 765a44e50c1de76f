"""Flags, values and combinations that vLLM, the device or a backend refuses."""

from autotune.engine.patterns._pattern import rows

ARGUMENTS = (
    *rows(
        "invalid_flag",
        ("unrecognized arguments", r"error: unrecognized arguments?"),
        ("ambiguous option", r"error: ambiguous option"),
        ("unexpected keyword argument", r"EngineArgs\S* got an unexpected keyword argument"),
        ("no such option", r"error: no such option"),
    ),
    *rows(
        "invalid_value",
        ("error: argument", r"error: argument .*?(invalid|expected|not allowed|requires|must)"),
        ("following arguments are required", r"error: the following arguments are required"),
        ("invalid tool call parser", r"invalid tool call parser"),
        ("invalid reasoning parser", r"invalid reasoning parser"),
        ("reasoning parser", r"reasoning parser .{0,80}(not found|is not registered)"),
        ("tool parser", r"tool parser .{0,80}(not found|is not registered|not in)"),
        ("unknown", r"Unknown (load|KV cache layout|scheduler|tokenizer mode|speculative decoding method|all2all)"),
        ("load format", r"(unknown|unsupported|invalid) load format|load format .{0,60}is not supported"),
        ("attention backend", r"(invalid|unknown) attention backend:? ?['\"\w]"),
        ("unrecognized distributed executor backend", r"unrecognized distributed executor backend"),
    ),
)


DEVICE = (
    *rows(
        "unsupported_on_gpu",
        ("bfloat16 is only supported on gpus", r"bfloat16 is only supported on GPUs"),
        ("compute capability below", r"GPUs with compute capability below"),
        ("ptx instruction is not supported", r"PTX instruction is not supported on your GPU"),
        ("bfloat16 kv cache is not supported", r"bfloat16 KV cache is not supported on"),
        (
            "fp8",
            r"fp8.{0,80}(only supported|requires|not supported).{0,80}(compute capability|sm_?\d\d|ada|hopper|GPU)",
        ),
        ("fp8e4nv", r"type fp8e4nv not supported in this architecture"),
        ("minimum capability", r"(not supported for the current GPU|minimum capability: ?\d+)"),
        ("quantization scheme is not supported", r"quantization scheme is not supported for"),
        ("min capability", r"min capability: ?\d+"),
        ("not supported for the current gpu", r"is not supported for the current GPU"),
        ("only supported on", r"is only supported on .{0,60}(compute capability|hopper|blackwell|CUDA|ROCm|SM ?\d)"),
        ("shared memory", r"out of resource: shared memory"),
        (
            "not supported on",
            r"(is|are) not supported on (this (device|platform|gpu)|cpu|the current (device|platform|gpu))",
        ),
    ),
    *rows(
        "not_enough_gpus",
        ("available gpus", r"world size \(\d+\) is larger than the number of available GPUs"),
        ("available gpus", r"number of (required|requested) gpus exceeds"),
        ("invalid device ordinal", r"CUDA error: invalid device ordinal"),
        ("dp adjusted local rank", r"DP adjusted local rank .* is out of bounds"),
        ("placement group", r"(cannot provide a placement group|current node has no gpu available)"),
    ),
    *rows(
        "unsupported_quantization",
        ("unknown quantization method", r"unknown quantization method"),
        (
            "quantization method",
            r"quantization method .{0,80}(not supported|does not match|specified in the (model )?config)",
        ),
        ("cannot find the config file for", r"cannot find the config file for \w+"),
        ("cannot find any of", r"cannot find any of .* in the model'?s quantization config"),
        ("unsupported quantization config", r"unsupported quantization config"),
        ("quantization", r"unknown quantization name|invalid quantization|model quantization method is not specified"),
        ("quantization", r"(torch\.)?(b?float16|half) is not supported for quantization method"),
        ("expected at most 0 argument", r"_C::\w*(quant|scaled|marlin|gptq|awq)\w*\(\) expected at most 0 argument"),
        ("not divisible by", r"weight (input|output)_size(_per_partition)? ?= ?\d+ is not divisible by"),
        ("is not supported for weights_dtype", r"is not supported for weights_dtype"),
        ("bitsandbytes", r"please install bitsandbytes|bitsandbytes .{0,60}(not supported|>=)"),
    ),
    *rows(
        "unsupported_by_backend",
        ("no common block size", r"no common block size for"),
        ("share no supported kv cache block size", r"share no supported KV cache block size"),
        ("no valid attention backend", r"no valid attention backend found"),
        ("no valid cpu mla", r"no valid CPU MLA prefill backend"),
        ("is not valid for this configuration", r"selected backend .* is not valid for this configuration"),
        ("unsupported kv cache dtype", r"unsupported kv.?cache.?dtype"),
        ("fp8 kv cache", r"FP8 KV cache .{0,60}(not (yet )?support|requires)"),
        ("head size", r"head.?size .{0,80}(not supported|is not supported by)"),
        ("block size", r"block.?size .{0,60}(not supported|must be|is not supported)"),
        ("does not support one of the following", r"impl does not support one of the following"),
        ("invalid attention backend for", r"invalid attention backend for"),
        ("attention backend", r"attention backend .{0,80}(does not support|not supported|is not available)"),
        (
            "does not support",
            r"(flash.?(attn|attention|infer|mla)|triton.?attn|xformers|cutlass|aiter)\w* .{0,40}does not support",
        ),
    ),
    *rows("numa", "not enough allowed numa nodes", ("numa", r"numa.{0,40}(not available|not enough|failed to bind)")),
)


GENERAL = (
    *rows(
        "invalid_combination",
        ("must be divisible by", r"(must be|is not) divisible by (tensor|pipeline|context|the|dcp|tp|pcp|data)"),
        ("max_num_batched_tokens", r"max_num_batched_tokens .*?(smaller|less|greater|must|cannot)"),
        ("max_num_seqs", r"max_num_seqs .*?(smaller|less|greater|must|cannot|exceed)"),
        ("long_prefill_token_threshold", r"long_prefill_token_threshold"),
        ("is incompatible with", r"is (incompatible|not compatible) with"),
        ("not compatible with", r"not (currently |yet )?compatible with"),
        ("cannot be used with", r"cannot be used (with|together)"),
        ("mutually exclusive", r"mutually exclusive"),
        ("can only be set when", r"can only be (set|used) (when|with)"),
        ("must be greater than or equal to", r"must be (greater|smaller|less|larger) than"),
        ("must be less than", r"must be (greater|smaller|less|larger) than"),
        ("cannot be greater than", r"cannot be (greater|smaller|less|larger) than"),
        ("must be >=", r"must be >= \w*[a-z_]{4}"),
        ("unless", r"cannot (enable|use|set) .{0,80} unless"),
    ),
    *rows(
        "invalid_value",
        ("validation error", r"validation errors? for \w*Config\b.*?(?P<at>Input should be)"),
        (
            "validation error",
            r"validation errors? for \w*(Config|Args)\b.*?(?P<at>Extra input|Unexpected keyword|Field required)",
        ),
        (
            "validation error",
            r"validation errors? for \w*Config\b.*?(invalid|unknown|unrecognized|must be (one|in|a |positive|between))",
        ),
        ("must be one of", r"(ValueError|KeyError|AssertionError): .*must be one of"),
        ("is not a valid", r"ValueError: .{0,80}is not a valid \w+"),
    ),
    *rows(
        "invalid_combination",
        ("validation error", r"validation errors? for \w*Config\b.*?(?P<at>(Value error|Assertion failed), )"),
        ("validation error", r"validation errors? for \w*Config\b"),
    ),
    *rows(
        "compile_failed",
        "backendcompilerfailed",
        "inductorerror",
        ("torch._dynamo", r"torch\._dynamo\.exc\.\w+"),
        ("triton", r"triton\.(compiler\.errors|runtime\.errors)\.\w+|PassManager::run failed"),
    ),
    *rows(
        "unsupported_by_backend",
        ("notimplementederror", r"^NotImplementedError\b"),
        (
            "support",
            r"^(ValueError|RuntimeError|AssertionError): .*?\b(is|are) (only|not( yet| currently)?) supported\b",
        ),
        ("support", r"^(ValueError|RuntimeError|AssertionError): .*?\b(does|do) not (yet |currently )?support\b"),
        ("support", r"^(ValueError|RuntimeError|AssertionError): .*?\b(currently )?only supports?\b"),
        ("unsupported", r"^(ValueError|RuntimeError|AssertionError): \(?['\"]?unsupported\b"),
    ),
)
