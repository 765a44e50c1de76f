"""How each class of failure looks from outside: in which phase, from which process, with which words and exit code.

Names are those of the tuner's failure classes, with variants after a dot. ``{…}`` is filled from the engine's flags.
The process that dies decides the shape of the log:

    argparse  one line on stderr, exit code 2
    api       a bare traceback on stderr, exit code 1
    core      ``EngineCore failed to start`` with the exception, then the API server's own consequence, exit code 1
    worker    the same behind ``WorkerProc hit an exception`` and ``Worker proc died unexpectedly``
    kill_core, kill_api  SIGKILL, as the kernel does when memory runs out
    exit      the API server just ends, with the code in ``text``
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Breakage:
    """One failure: the phase it strikes in, the process it strikes, and what it says."""

    phase: str
    process: str
    text: str
    before: tuple[str, ...] = ()


OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {tried_mib:.2f} MiB. GPU 0 has a total capacity of "
    "{total_gib:.2f} GiB of which 15.62 MiB is free. Including non-PyTorch memory, this process has {total_gib:.2f} "
    "GiB memory in use."
)
PYDANTIC = "pydantic_core._pydantic_core.ValidationError: 1 validation error for {config}\n  Value error, {message}"


def _pydantic(config: str, message: str) -> str:
    return PYDANTIC.replace("{config}", config).replace("{message}", message)


BREAKAGES: dict[str, Breakage] = {
    "broken_install": Breakage("imports", "api", "RuntimeError: operator torchvision::nms does not exist"),
    "broken_install.symbol": Breakage(
        "imports", "api", "ImportError: vllm/_C.abi3.so: undefined symbol: _ZN3c104cuda9SetDeviceEab"
    ),
    "invalid_flag": Breakage("imports", "argparse", "error: unrecognized arguments: --no-such-flag 1"),
    "invalid_value": Breakage(
        "imports",
        "argparse",
        "serve: error: argument --kv-cache-dtype: invalid choice: 'fp7' (choose from 'auto', 'fp8')",
    ),
    "invalid_combination": Breakage(
        "config",
        "api",
        _pydantic(
            "SchedulerConfig",
            "max_num_batched_tokens (8) must be greater than or equal to max_num_seqs (16). [type=value_error]",
        ),
    ),
    "length_beyond_model": Breakage(
        "config",
        "api",
        _pydantic(
            "ModelConfig",
            "User-specified max_model_len (999999) is greater than the derived max_model_len "
            "(max_position_embeddings=4096.0 or model_max_length=None in model's config.json).",
        ),
    ),
    "unsupported_on_gpu": Breakage(
        "config",
        "api",
        _pydantic(
            "VllmConfig",
            "The quantization method fp8 is not supported for the current GPU. Minimum capability: 89. "
            "Current capability: 75.",
        ),
    ),
    "unsupported_quantization": Breakage(
        "config", "api", _pydantic("VllmConfig", "Cannot find the config file for awq")
    ),
    "unsupported_quantization.unknown": Breakage(
        "config",
        "api",
        _pydantic("ModelConfig", "Unknown quantization method: bitsandbytes. Must be one of ['awq', 'fp8']."),
    ),
    "unsupported_arch": Breakage(
        "config",
        "api",
        _pydantic("ModelConfig", "Model architectures ['NoSuchForCausalLM'] are not supported for now."),
    ),
    "model_not_found": Breakage(
        "config",
        "api",
        "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or "
        "'namespace/repo_name': '/models/nope'. Use `repo_type` argument if needed.",
    ),
    "hf_auth": Breakage(
        "config",
        "api",
        "OSError: You are trying to access a gated repo.\nMake sure to have access to it. 401 Client Error.",
    ),
    "port_in_use": Breakage("config", "api", "OSError: [Errno 98] Address already in use"),
    "not_enough_free_memory": Breakage(
        "weights",
        "core",
        "ValueError: Free memory on device cuda:0 ({free_gib:.2f}/{total_gib:.2f} GiB) on startup is less than desired "
        "GPU memory utilization ({utilization}, {wanted_gib:.2f} GiB). Decrease GPU memory utilization or reduce GPU "
        "memory used by other processes.",
    ),
    "driver": Breakage(
        "weights",
        "core",
        "RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain.",
    ),
    "shm": Breakage(
        "weights",
        "core",
        "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)",
        ("NCCL WARN Error while creating shared memory segment /dev/shm/nccl-Ab12Cd (size 7340384)",),
    ),
    "disk_full": Breakage("compile", "core", "OSError: [Errno 28] No space left on device"),
    "weights_missing": Breakage("weights", "worker", "RuntimeError: Cannot find any model weights with `{model}`"),
    "weights_corrupt": Breakage(
        "weights", "worker", "SafetensorError: Error while deserializing header: incomplete metadata"
    ),
    "oom_weights": Breakage("weights", "core", OOM),
    "jit_toolchain": Breakage(
        "profile",
        "core",
        "RuntimeError: Ninja build failed. Ninja output:\n/bin/sh: 1: /usr/local/cuda/bin/nvcc: not found",
    ),
    "cache_poisoned": Breakage(
        "compile",
        "core",
        '  File "/cache/torch_compile_cache/0a1b2c3d4e/rank_0_0/backbone/artifact.py", line 1, in load\n'
        '  File "/site-packages/torch/_inductor/standalone_compile.py", line 120, in load\n'
        "RuntimeError: artifact has a bad magic number",
    ),
    "cache_poisoned.pickle": Breakage(
        "compile",
        "core",
        '  File "/cache/torch_compile_cache/0a1b2c3d4e/rank_0_0/backbone/artifact.py", line 1, in load\n'
        "_pickle.UnpicklingError: pickle data was truncated",
    ),
    "oom_activation": Breakage("profile", "core", OOM),
    "profiling_disturbed": Breakage(
        "profile",
        "core",
        "AssertionError: Error in memory profiling. Initial free memory 70.10 GiB, current free memory 72.33 GiB. "
        "This happens when other processes sharing the same container release GPU memory while vLLM is profiling.",
    ),
    "kv_cache_none": Breakage(
        "profile",
        "core",
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
        "initializing the engine.",
    ),
    "kv_cache_too_small": Breakage(
        "profile",
        "core",
        "ValueError: To serve at least one request with the model's max seq len ({model_len}), ({needed_gib:.2f} GiB "
        "KV cache is needed, which is larger than the available KV cache memory ({kv_gib:.2f} GiB). Based on the "
        "available memory, the estimated maximum model length is {kv_tokens}. Try increasing "
        "`gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.",
    ),
    "unsupported_by_backend": Breakage(
        "profile", "worker", "ValueError: No common block size for {block_size} (FLASH_ATTN: [MultipleOf(16)])."
    ),
    "host_memory_kv": Breakage(
        "profile",
        "worker",
        "ValueError: Available memory on node 0 (20.31/21.84 GiB) on kv cache allocation is less than requested memory "
        "for kv (64.0 GiB). Decrease --kv-cache-memory-bytes, VLLM_CPU_KVCACHE_SPACE, or reduce CPU memory used by "
        "other processes.",
    ),
    "host_oom": Breakage("profile", "worker", "RuntimeError: cancelled"),
    "host_oom.api": Breakage("profile", "kill_api", ""),
    "oom_graph": Breakage("graphs", "core", OOM),
    "oom_graph.cuda": Breakage("graphs", "core", "RuntimeError: CUDA error: out of memory"),
    "oom_sampler": Breakage(
        "graphs",
        "core",
        "RuntimeError: CUDA out of memory occurred when warming up sampler with {seqs} dummy requests. Please try "
        "lowering `max_num_seqs` or `gpu_memory_utilization` when initializing the engine.",
    ),
    "gpu_fault": Breakage(
        "graphs", "core", "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"
    ),
    "ulimit": Breakage("server", "api", "OSError: [Errno 24] Too many open files"),
    "unknown": Breakage("profile", "core", "RuntimeError: the flux capacitor is not aligned"),
    "killed": Breakage("weights", "kill_api", ""),
    "exited": Breakage("server", "exit", "0"),
    "exited.nonzero": Breakage("config", "exit", "7"),
    "oom_runtime": Breakage("serving", "core", OOM),
    "gpu_fault.runtime": Breakage(
        "serving", "core", "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"
    ),
    "engine_died": Breakage("serving", "kill_core", ""),
    "unknown.serving": Breakage("serving", "core", "AssertionError: request not in the running queue"),
}
