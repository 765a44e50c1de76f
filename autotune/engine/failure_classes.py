"""The ways an engine fails, and what each one means for a study: data with reasons, no logic.

A class is one root cause with one remedy. Two failures that call for the same remedy share a class; two
with the same words in the log but different remedies do not (an out-of-memory error is one of nine, split
by the boot phase). Five consequences:

    TEACHES       the configuration cannot work: told to the sampler as infeasible, with the margin
    PRUNES_VALUE  one value of one parameter cannot work here: never tried again in this study
    RETRY_ONCE    the machine was in the way: clean up, boot the same configuration once more
    STOPS_STUDY   nothing can work until a person acts: one clear cause, then the end
    NONE          no failure of ours: a stop that was asked for

``teaches`` marks the classes whose outcome the sampler may see. A value that this vLLM does not know
prunes without teaching: after an upgrade every trial would fail by it, and none would be worse for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class Consequence(StrEnum):
    """What a failure leads to; see the module text."""

    TEACHES = "teaches"
    PRUNES_VALUE = "prunes_value"
    RETRY_ONCE = "retry_once"
    STOPS_STUDY = "stops_study"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class FailureClass:
    """One root cause. ``summary`` says what happened, ``what_to_do`` the next step, both for a person.

    ``name`` is public: it appears in JSON, in the store and in reports, and does not change.
    """

    name: str
    consequence: Consequence
    summary: str
    what_to_do: str
    teaches: bool


_T, _P, _R, _S = (Consequence.TEACHES, Consequence.PRUNES_VALUE, Consequence.RETRY_ONCE, Consequence.STOPS_STUDY)

# name, consequence, what happened, what to do; the last column says whether a pruned value teaches too.
_MEMORY: tuple[tuple[str, Consequence, str, str], ...] = (
    (
        "kv_cache_too_small",
        _T,
        "The KV cache cannot hold one request of max-model-len tokens",
        "Lower --max-model-len to what the workload needs, raise --gpu-memory-utilization (or the KV bytes), "
        "or use an 8-bit --kv-cache-dtype",
    ),
    (
        "kv_cache_none",
        _T,
        "Weights and activations left no memory for a KV cache",
        "Raise --gpu-memory-utilization, lower --max-num-batched-tokens, or use a smaller or quantized model",
    ),
    (
        "oom_weights",
        _T,
        "The device ran out of memory while loading the weights",
        "Use a quantized checkpoint, more GPUs (--tensor-parallel-size) or a larger GPU",
    ),
    (
        "oom_activation",
        _T,
        "The device ran out of memory in the profiling run, before the KV cache was sized",
        "Lower --max-num-batched-tokens or --max-num-seqs",
    ),
    (
        "oom_graph",
        _T,
        "The device ran out of memory while capturing CUDA graphs",
        "Lower --gpu-memory-utilization by a few hundredths or --max-num-seqs; --enforce-eager is the last resort",
    ),
    (
        "oom_sampler",
        _T,
        "The device ran out of memory warming up the sampler or pooler",
        "Lower --max-num-seqs, or --gpu-memory-utilization",
    ),
    (
        "oom_warmup",
        _T,
        "The device ran out of memory after the KV cache was allocated, before serving",
        "Lower --gpu-memory-utilization by a few hundredths",
    ),
    (
        "oom_kv_cache",
        _T,
        "The device ran out of memory while allocating the KV cache",
        "Lower --kv-cache-memory-bytes or --num-gpu-blocks-override where one is set, else --gpu-memory-utilization",
    ),
    (
        "oom_runtime",
        _T,
        "The device ran out of memory while serving",
        "Leave headroom: lower --gpu-memory-utilization or --max-num-seqs; include the workload's own request "
        "features (logprobs, images, adapters) in the load",
    ),
    (
        "oom_suspect",
        _R,
        "An out-of-memory error although far more memory was free than was asked for",
        "Suspect the environment (driver, WSL, another tenant), not the configuration",
    ),
    (
        "oom_neighbour",
        _R,
        "The device ran out of memory because another process took some of it since this engine was started",
        "End that process or keep it off this device, then boot again",
    ),
    (
        "not_enough_free_memory",
        _R,
        "Less memory was free at start than --gpu-memory-utilization asks for",
        "End what still holds the memory; else keep --gpu-memory-utilization below free / total",
    ),
    (
        "profiling_disturbed",
        _R,
        "Another process took or released device memory while vLLM measured it",
        "Wait until the memory is quiet, then boot again; keep other processes off this device",
    ),
    (
        "host_memory_kv",
        _R,
        "The host has less free memory than the KV cache asks for",
        "Lower --kv-cache-memory-bytes (or VLLM_CPU_KVCACHE_SPACE, --gpu-memory-utilization), or free host memory",
    ),
    (
        "host_oom",
        _R,
        "The host ran out of memory",
        "Raise the container's memory limit, or lower what the engine takes from the host (KV on CPU, offloading, "
        "parallel builds: MAX_JOBS)",
    ),
)

_CONFIGURATION: tuple[tuple[str, Consequence, str, str], ...] = (
    (
        "invalid_flag",
        _P,
        "This vLLM does not know the flag",
        "Drop the flag, or look up its new name in `vllm serve --help=all` of the installed version",
    ),
    (
        "invalid_value",
        _P,
        "This vLLM does not accept the value",
        "Use a value that the installed version lists in `vllm serve --help=all`",
    ),
    (
        "invalid_combination",
        _T,
        "vLLM refuses this combination of values",
        "Change one of the values named in the line; the combination is not tried again",
    ),
    (
        "length_beyond_model",
        _P,
        "--max-model-len is longer than the model supports",
        "Lower --max-model-len, or scale positions with --hf-overrides (rope_parameters, max_position_embeddings)",
    ),
    (
        "not_enough_gpus",
        _P,
        "The configuration needs more GPUs than vLLM can see",
        "Lower --tensor-parallel-size (or pipeline, data), or check CUDA_VISIBLE_DEVICES",
    ),
    ("unsupported_on_gpu", _P, "This GPU cannot run it", "Leave the value out on this GPU; nothing else changes that"),
    (
        "unsupported_quantization",
        _P,
        "The checkpoint, this vLLM or this device does not support the quantization",
        "Leave --quantization unset, or use a checkpoint made for it",
    ),
    (
        "unsupported_by_backend",
        _P,
        "The attention or kernel backend does not support the value",
        "Leave the value at vLLM's default, or choose a backend that supports it",
    ),
    (
        "unsupported_arch",
        _S,
        "This vLLM does not support the model's architecture",
        "Use a vLLM version that supports the model",
    ),
    (
        "numa",
        _P,
        "Not enough NUMA nodes for the CPU workers",
        'Bind the threads by hand (VLLM_CPU_OMP_THREADS_BIND="0-1|2-3") or lower --tensor-parallel-size',
    ),
)

_MODEL: tuple[tuple[str, Consequence, str, str], ...] = (
    (
        "model_not_found",
        _S,
        "The model was not found",
        "Check the path or name; a local model needs an absolute path, a hub model must be downloaded first",
    ),
    (
        "weights_missing",
        _S,
        "The model's folder has no weight files that vLLM can load",
        "Finish the download, or check --load-format",
    ),
    (
        "weights_corrupt",
        _S,
        "A weight file cannot be read or does not fit the model",
        "Download the weights again and compare their checksums",
    ),
    (
        "model_config",
        _S,
        "The model's config.json cannot be used",
        "Repair config.json; a model with its own code needs --trust-remote-code",
    ),
    (
        "tokenizer_missing",
        _S,
        "The tokenizer was not found or cannot be read",
        "Put the tokenizer files beside the weights or give --tokenizer",
    ),
    (
        "hf_auth",
        _S,
        "The model hub refused access",
        "Accept the model's licence and pass HF_TOKEN, or use a local copy",
    ),
    (
        "network",
        _S,
        "The model hub or another host could not be reached",
        "Download the model first and set HF_HUB_OFFLINE=1, or repair the network",
    ),
)

_MACHINE: tuple[tuple[str, Consequence, str, str], ...] = (
    ("port_in_use", _R, "Another process listens on the port", "Use a free port for every boot"),
    (
        "shm",
        _S,
        "Shared memory (/dev/shm) is too small or not writable",
        "Give the container more: --shm-size=16g or --ipc=host",
    ),
    ("disk_full", _S, "No space left on a disk", "Free space on the disk named in the line, then start again"),
    (
        "driver",
        _S,
        "The GPU driver and this build of vLLM do not fit",
        "Update the driver, or install the vLLM build for this driver's CUDA version",
    ),
    (
        "no_device",
        _S,
        "vLLM found no device that it can use",
        "Check that the GPU is visible (nvidia-smi, CUDA_VISIBLE_DEVICES, the container's --gpus)",
    ),
    (
        "jit_toolchain",
        _S,
        "A kernel could not be compiled: the build tools are missing or broken",
        "Install a C compiler, ninja and the CUDA toolkit (nvcc) that fit, and set CUDA_HOME",
    ),
    (
        "cache_poisoned",
        _R,
        "The compile cache holds something that this vLLM cannot use",
        "Move the cache folder (VLLM_CACHE_ROOT) aside and boot again",
    ),
    (
        "compile_failed",
        _T,
        "torch.compile failed on this configuration",
        "Leave the value out; --enforce-eager or -O0 starts without compilation",
    ),
    (
        "broken_install",
        _S,
        "The vLLM installation is broken",
        "Install vLLM again in a fresh environment, with the torch version it asks for",
    ),
    ("ulimit", _S, "The limit on open files or processes is too low", "Raise it: ulimit -n 65536 (and ulimit -u)"),
    (
        "permission",
        _S,
        "The system refused access to a file or port",
        "Check the owner and mode of what the line names",
    ),
    (
        "cuda_in_fork",
        _R,
        "CUDA was used in a process that then forked",
        "Boot without a warm server, or set VLLM_WORKER_MULTIPROC_METHOD=spawn",
    ),
    (
        "gpu_fault",
        _R,
        "A GPU kernel failed",
        "Check that the GPU still answers, boot again; a second time the value is unsafe here",
    ),
    (
        "gpu_lost",
        _S,
        "The GPU does not answer any more",
        "Reset the GPU or reboot the host; look for Xid lines in the kernel log",
    ),
    (
        "nccl",
        _S,
        "The GPUs could not talk to each other",
        "Run with NCCL_DEBUG=INFO; try NCCL_P2P_DISABLE=1 or --disable-custom-all-reduce",
    ),
)

_PROCESS: tuple[tuple[str, Consequence, str, str], ...] = (
    (
        "engine_died",
        _R,
        "The engine process died without a stated cause",
        "Boot again once; look at the kernel log for what ended it",
    ),
    (
        "crashed",
        _R,
        "A process crashed in native code",
        "Boot again once; a second time leave the value out and report the crash to vLLM",
    ),
    ("exited", _R, "The server ended by itself", "Read the end of the log; nobody asked it to stop"),
    (
        "killed",
        _R,
        "A process was killed by a signal that we did not send",
        "Look for the kernel's out-of-memory killer (dmesg, the cgroup's memory.events) and for other tools that kill",
    ),
    (
        "stopped_by_other",
        _R,
        "The server was asked to stop, but not by us",
        "Find who sent the signal: a supervisor, a container's stop, another person",
    ),
    (
        "boot_hang",
        _R,
        "The engine stopped making progress while booting",
        "Boot again once; twice in the same phase means that the machine or the value is at fault",
    ),
    (
        "run_hang",
        _R,
        "The engine accepts requests but generates nothing",
        "Boot again once; twice means that the value is unsafe here",
    ),
    (
        "request_errors",
        _T,
        "Requests failed although the server was up",
        "Look at the first error that a client got; a configuration that fails requests is not usable",
    ),
    (
        "unknown",
        _R,
        "The engine failed in a way that is not known yet",
        "Read the line and what follows it in the log, and report the log so that it gets a class",
    ),
)

# Pruned values that are a fact about this device or build rather than about a flag's spelling.
_PRUNED_AND_TAUGHT = frozenset(
    {"unsupported_on_gpu", "unsupported_quantization", "unsupported_by_backend", "not_enough_gpus", "numa"}
)

# The machine works and any configuration would meet the same.
MODEL_AT_FAULT = frozenset(
    {"unsupported_arch", "model_not_found", "weights_missing", "weights_corrupt", "model_config", "tokenizer_missing"}
)


def _table() -> Mapping[str, FailureClass]:
    rows = _MEMORY + _CONFIGURATION + _MODEL + _MACHINE + _PROCESS
    classes = {
        name: FailureClass(name, consequence, summary, advice, consequence is _T or name in _PRUNED_AND_TAUGHT)
        for name, consequence, summary, advice in rows
    }
    stopped = FailureClass(
        "stopped_by_us", Consequence.NONE, "The server was stopped on request", "Nothing to do", False
    )
    return MappingProxyType({**classes, stopped.name: stopped})


CLASSES: Mapping[str, FailureClass] = _table()
"""Every failure class by its name."""
