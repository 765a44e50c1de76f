"""Command-line flags of the engine, built from the fields of the configuration classes as vLLM does."""

import argparse
import dataclasses
import json
import types
import typing
from dataclasses import dataclass

from vllm._version import __version__
from vllm.config import CacheConfig, CompilationConfig, LoadConfig, ModelConfig, ParallelConfig, SchedulerConfig
from vllm.entrypoints.launchers.cli_args import FrontendArgs

SIZES = {"k": 10**3, "K": 2**10, "m": 10**6, "M": 2**20, "g": 10**9, "G": 2**30}


def human_readable_int(text: str) -> int:
    """An integer that may end in k, M, G …: lower case counts in 1000s, upper case in 1024s."""
    if text and text[-1] in SIZES:
        return int(float(text[:-1]) * SIZES[text[-1]])
    return int(text)


def human_readable_int_or_auto(text: str) -> int:
    """The same, and ``auto`` (-1) for what fits."""
    return -1 if text in ("auto", "-1") else human_readable_int(text)


human_readable_int.__name__ = human_readable_int_or_auto.__name__ = "human readable int"


def _kwargs(hint: object, default: object) -> dict[str, object]:
    options = (
        typing.get_args(hint)
        if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
        else (hint,)
    )
    kind = options[0]
    if bool in options:
        return {"action": argparse.BooleanOptionalAction, "default": default}
    if typing.get_origin(kind) is typing.Literal:
        return {"default": default} | ({} if str in options else {"choices": sorted(typing.get_args(kind))})
    if typing.get_origin(kind) is list:
        return {"type": typing.get_args(kind)[0], "nargs": "+", "default": default}
    if typing.get_origin(kind) is dict:
        return {"type": json.loads, "default": default}
    return {"type": kind, "default": default}


def get_kwargs(cls: type) -> dict[str, dict[str, typing.Any]]:
    """Arguments of ``add_argument`` for every field of a configuration class."""
    hints = typing.get_type_hints(cls)
    kwargs = {f.name: _kwargs(hints[f.name], f.default) for f in dataclasses.fields(cls)}
    human_readable_int_args = {"max_num_batched_tokens", "kv_cache_memory_bytes"}
    for name in kwargs:
        if name == "max_model_len":
            kwargs[name]["type"] = human_readable_int_or_auto
        elif name in human_readable_int_args:
            kwargs[name]["type"] = human_readable_int
    return kwargs


class FlexibleArgumentParser(argparse.ArgumentParser):
    """Takes ``--max_num_seqs`` for ``--max-num-seqs``."""

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        words = [self._dashed(w) if w.startswith("--") else w for w in args] if args is not None else None
        return super().parse_known_args(words, namespace)

    @staticmethod
    def _dashed(word: str) -> str:
        name, equals, value = word.partition("=")
        return name.replace("_", "-") + equals + value


@dataclass
class EngineArgs:
    """Everything that an engine can be told."""

    model: str = ModelConfig.model
    tokenizer: str | None = ModelConfig.tokenizer
    dtype: str = ModelConfig.dtype
    max_model_len: int | None = ModelConfig.max_model_len
    quantization: str | None = ModelConfig.quantization
    enforce_eager: bool = ModelConfig.enforce_eager
    gpu_memory_utilization: float = CacheConfig.gpu_memory_utilization
    kv_cache_memory_bytes: int | None = CacheConfig.kv_cache_memory_bytes
    kv_cache_dtype: str = CacheConfig.cache_dtype
    block_size: int | None = CacheConfig.block_size
    max_num_seqs: int | None = SchedulerConfig.max_num_seqs
    max_num_batched_tokens: int | None = SchedulerConfig.max_num_batched_tokens

    @staticmethod
    def add_cli_args(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
        """Add every engine flag to ``parser``."""
        model_kwargs = get_kwargs(ModelConfig)
        model_group = parser.add_argument_group(title="ModelConfig")
        model_group.add_argument("--model", **model_kwargs["model"])
        model_group.add_argument("--tokenizer", **model_kwargs["tokenizer"])
        model_group.add_argument("--tokenizer-mode", **model_kwargs["tokenizer_mode"])
        model_group.add_argument("--trust-remote-code", **model_kwargs["trust_remote_code"])
        model_group.add_argument("--dtype", **model_kwargs["dtype"])
        model_group.add_argument("--seed", **model_kwargs["seed"])
        model_group.add_argument("--revision", **model_kwargs["revision"])
        model_group.add_argument("--max-model-len", **model_kwargs["max_model_len"])
        model_group.add_argument("--quantization", "-q", **model_kwargs["quantization"])
        model_group.add_argument("--enforce-eager", **model_kwargs["enforce_eager"])
        model_group.add_argument("--max-logprobs", **model_kwargs["max_logprobs"])
        model_group.add_argument("--served-model-name", **model_kwargs["served_model_name"])
        model_group.add_argument("--generation-config", **model_kwargs["generation_config"])
        model_group.add_argument("--hf-overrides", **model_kwargs["hf_overrides"])
        model_group.add_argument("--enable-sleep-mode", **model_kwargs["enable_sleep_mode"])
        cache_kwargs = get_kwargs(CacheConfig)
        cache_group = parser.add_argument_group(title="CacheConfig")
        cache_group.add_argument("--block-size", **cache_kwargs["block_size"])
        cache_group.add_argument("--gpu-memory-utilization", **cache_kwargs["gpu_memory_utilization"])
        cache_group.add_argument("--kv-cache-memory-bytes", **cache_kwargs["kv_cache_memory_bytes"])
        cache_group.add_argument("--num-gpu-blocks-override", **cache_kwargs["num_gpu_blocks_override"])
        cache_group.add_argument("--kv-cache-dtype", **cache_kwargs["cache_dtype"])
        cache_group.add_argument("--enable-prefix-caching", **cache_kwargs["enable_prefix_caching"])
        cache_group.add_argument("--prefix-caching-hash-algo", **cache_kwargs["prefix_caching_hash_algo"])
        cache_group.add_argument("--kv-offloading-size", **cache_kwargs["kv_offloading_size"])
        cache_group.add_argument("--kv-offloading-backend", **cache_kwargs["kv_offloading_backend"])
        cache_group.add_argument("--watermark", **cache_kwargs["watermark"])
        scheduler_kwargs = get_kwargs(SchedulerConfig)
        scheduler_group = parser.add_argument_group(title="SchedulerConfig")
        scheduler_group.add_argument("--max-num-batched-tokens", **scheduler_kwargs["max_num_batched_tokens"])
        scheduler_group.add_argument("--max-num-seqs", **scheduler_kwargs["max_num_seqs"])
        scheduler_group.add_argument("--max-num-active-seqs", **scheduler_kwargs["max_num_active_seqs"])
        scheduler_group.add_argument(
            "--long-prefill-token-threshold", **scheduler_kwargs["long_prefill_token_threshold"]
        )
        scheduler_group.add_argument("--scheduling-policy", **scheduler_kwargs["scheduling_policy"])
        scheduler_group.add_argument("--enable-chunked-prefill", **scheduler_kwargs["enable_chunked_prefill"])
        scheduler_group.add_argument("--scheduler-cls", **scheduler_kwargs["scheduler_cls"])
        scheduler_group.add_argument("--async-scheduling", **scheduler_kwargs["async_scheduling"])
        scheduler_group.add_argument("--stream-interval", **scheduler_kwargs["stream_interval"])
        scheduler_group.add_argument("--scheduler-reserve-full-isl", **scheduler_kwargs["scheduler_reserve_full_isl"])
        scheduler_group.add_argument("--prefill-schedule-interval", **scheduler_kwargs["prefill_schedule_interval"])
        scheduler_group.add_argument("--max-num-queued-reqs", **scheduler_kwargs["max_num_queued_reqs"])
        parallel_kwargs = get_kwargs(ParallelConfig)
        parallel_group = parser.add_argument_group(title="ParallelConfig")
        parallel_group.add_argument("--tensor-parallel-size", "-tp", **parallel_kwargs["tensor_parallel_size"])
        parallel_group.add_argument("--pipeline-parallel-size", "-pp", **parallel_kwargs["pipeline_parallel_size"])
        parallel_group.add_argument("--data-parallel-size", "-dp", **parallel_kwargs["data_parallel_size"])
        parallel_group.add_argument("--enable-expert-parallel", **parallel_kwargs["enable_expert_parallel"])
        parallel_group.add_argument("--distributed-executor-backend", **parallel_kwargs["distributed_executor_backend"])
        parallel_group.add_argument("--disable-custom-all-reduce", **parallel_kwargs["disable_custom_all_reduce"])
        parallel_group.add_argument("--enable-dbo", **parallel_kwargs["enable_dbo"])
        load_kwargs = get_kwargs(LoadConfig)
        load_group = parser.add_argument_group(title="LoadConfig")
        load_group.add_argument("--load-format", **load_kwargs["load_format"])
        load_group.add_argument("--download-dir", **load_kwargs["download_dir"])
        load_group.add_argument("--safetensors-load-strategy", **load_kwargs["safetensors_load_strategy"])
        compilation_kwargs = get_kwargs(CompilationConfig)
        compilation_group = parser.add_argument_group(title="CompilationConfig")
        compilation_group.add_argument("--cudagraph-capture-sizes", **compilation_kwargs["cudagraph_capture_sizes"])
        compilation_group.add_argument(
            "--max-cudagraph-capture-size", **compilation_kwargs["max_cudagraph_capture_size"]
        )
        vllm_group = parser.add_argument_group(title="VllmConfig")
        vllm_group.add_argument("--attention-backend", type=str, default=None)
        vllm_group.add_argument("--compilation-config", "-cc", type=json.loads, default=None)
        vllm_group.add_argument("--optimization-level", type=int, default=2)
        vllm_group.add_argument(
            "--performance-mode", choices=["balanced", "interactivity", "throughput"], default="balanced"
        )
        vllm_group.add_argument("--speculative-config", type=json.loads, default=None)
        vllm_group.add_argument("--disable-log-stats", action="store_true")
        vllm_group.add_argument("--shutdown-timeout", type=int, default=0)
        return parser


@dataclass
class AsyncEngineArgs(EngineArgs):
    """The engine's flags plus those of its asynchronous front end."""

    enable_log_requests: bool = False

    @staticmethod
    def add_cli_args(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
        """Add the engine's flags and the front end's own."""
        parser = EngineArgs.add_cli_args(parser)
        parser.add_argument("--enable-log-requests", action=argparse.BooleanOptionalAction, default=False)
        return parser


def _add_serve_args(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model_tag", nargs="?")
    for name, kwargs in get_kwargs(FrontendArgs).items():
        parser.add_argument(f"--{name.replace('_', '-')}", **kwargs)
    AsyncEngineArgs.add_cli_args(parser)


def make_arg_parser(serve_command: bool) -> FlexibleArgumentParser:
    """The parser of ``vllm`` (with its ``serve`` command), or that of the bare API server module."""
    parser = FlexibleArgumentParser(prog="vllm")
    if not serve_command:
        _add_serve_args(parser)
        return parser
    parser.add_argument("-v", "--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="subparser", parser_class=FlexibleArgumentParser)
    _add_serve_args(commands.add_parser("serve"))
    return parser
