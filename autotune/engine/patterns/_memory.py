"""Memory of the device and of the host."""

from autotune.engine.patterns._pattern import OOM, rows

MEMORY = (
    *rows(
        "kv_cache_too_small",
        ("to serve at least one request", r"to serve at least one request with the model\S* max seq len"),
        (
            "is larger than the maximum number of tokens",
            r"max seq len \(\d+\) is larger than the maximum number of tokens that can be stored in KV cache",
        ),
        "cannot auto-fit max_model_len",
    ),
    *rows("kv_cache_none", "no available memory for the cache blocks"),
    *rows("oom_sampler", ("out of memory occurred when warming up", r"when warming up (sampler|pooler)")),
    *rows(
        "not_enough_free_memory",
        ("free memory on device", r"free memory on device .*?(is less than|less than desired)"),
        ("available memory on node", r"available memory on node .*? on startup is less than desired"),
        ("externally held weights on device", r"exceed the desired GPU memory utilization"),
    ),
    *rows("host_memory_kv", ("available memory on node", r"on kv cache allocation is less than requested memory")),
    *rows("profiling_disturbed", "error in memory profiling"),
    *rows(
        "host_oom",
        "defaultcpuallocator: can't allocate memory",
        ("not enough memory: you tried to allocate", r"defaultcpuallocator|alloc_cpu"),
        "std::bad_alloc",
        "oomkilled",
        ("killed process", r"out of memory: killed process|oom-kill:"),
        ("memoryerror", r"^MemoryError\b"),
        "cannot allocate memory",
        ("killed signal terminated program", r"killed signal terminated program \w+"),
        ("killed due to memory pressure", r"killed due to memory pressure|OutOfMemoryError: Task was killed"),
        ("raylet", r"workers? .{0,80}killed due to the node running low on memory"),
        ("cuda_error_host_memory", r"HOST_MEMORY"),
    ),
    *rows(
        OOM,
        ("outofmemoryerror", r"\b(torch\.(cuda\.)?)?OutOfMemoryError\b"),
        "cuda out of memory",
        "hip out of memory",
        "xpu out of memory",
        "cuda error: out of memory",
        "hip error: out of memory",
        "cuda_error_out_of_memory",
        "cudaerrormemoryallocation",
        ("out of memory", r"\[(CUDA|HIP)\]: out of memory"),
        "cublas_status_alloc_failed",
        ("acceleratorerror", r"AcceleratorError.*out of memory"),
        ("cuda driver error", r"CUDA driver error: out of memory"),
        ("failed to allocate", r"RuntimeError: .*failed to allocate .* (CUDA|device|GPU) memory"),
    ),
)
