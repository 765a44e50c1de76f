"""The boot, phase by phase: each may take time, hang or fail, and says what vLLM says.

    imports, config          in the API server
    weights, compile, profile, graphs   in the engine process
    server                   in the API server again

Some failures need no asking: too little free memory, no room for a KV cache, a cache smaller than the longest request.
"""

import time

from vllm._version import __version__
from vllm.fake.breaking import GIB, break_api, break_core
from vllm.fake.failures import BREAKAGES, Breakage
from vllm.fake.log import Log
from vllm.fake.process import sleep_forever
from vllm.fake.settings import Settings

# Methods that quantize while they load; those of the second row quantize nothing on a CPU.
ONLINE = ("fp8", "fp8_per_tensor", "fp8_per_block", "fp8_per_channel", "int8_per_channel_weight_only")
WITHOUT_EFFECT = ("int8_per_channel_weight_only",)


class Boot:
    """Walks one process through its phases."""

    def __init__(self, settings: Settings, log: Log) -> None:
        self.settings = settings
        self.behaviour = settings.behaviour
        self.log = log
        self.started = time.monotonic()

    def enter(self, phase: str) -> None:
        """Spend the phase's time; hang or fail where that was asked for."""
        if self.behaviour.hang == phase:
            sleep_forever()
        time.sleep(self.behaviour.boot_s.get(phase, 0.0) * self.behaviour.time_scale)
        name = self.behaviour.fail
        if name and BREAKAGES[name].phase == phase:
            self._break(BREAKAGES[name])

    def core(self) -> None:
        """All phases of the engine process."""
        settings = self.settings
        self.log.info(
            "core.py:133",
            f"Initializing a V1 LLM engine (v{__version__}) with config: model='{settings.model}', "
            f"speculative_config=None, dtype=torch.{_dtype(settings)}, "
            f"max_seq_len={settings.model_len}",
        )
        self._weights()
        self._compile()
        self._profile()
        self._graphs()
        took = time.monotonic() - self.started
        self.log.info("core.py:250", f"init engine (profile, create kv cache, warmup model) took {took:.2f} s")

    def _weights(self) -> None:
        memory = self.behaviour.memory
        if self.behaviour.platform == "cuda":
            wanted = memory.total_bytes * self.settings.flags["gpu-memory-utilization"]
            if memory.free_bytes is not None and memory.free_bytes < wanted:
                self._break(BREAKAGES["not_enough_free_memory"])
            self.log.info(
                "cuda.py:497",
                f"Using {self.settings.flags['attention-backend'] or 'FLASH_ATTN'} attention backend out of potential "
                "backends: ['FLASH_ATTN', 'TRITON_ATTN']",
            )
        self.log.info("gpu_model_runner.py:4100", f"Starting to load model {self.settings.model}...")
        self.enter("weights")
        method = str(self.settings.flags["quantization"] or "")
        if method in ONLINE:
            layers = 0 if method in WITHOUT_EFFECT else 8
            self.log.info("base_loader.py:151", f"Quantizing {layers} layers of types: {method}")
        self.log.info("default_loader.py:501", "Loading weights took 0.01 seconds")
        self.log.info(
            "gpu_model_runner.py:4170",
            f"Model loading took {memory.weights_bytes / GIB:.2f} GiB memory and 0.02 seconds",
        )

    def _compile(self) -> None:
        if not self.settings.flags["enforce-eager"]:
            self.log.info("backends.py:1050", "Using cache directory: /cache for vLLM's torch.compile")
        self.enter("compile")
        if not self.settings.flags["enforce-eager"]:
            took = self.behaviour.boot_s.get("compile", 0.0)
            self.log.info("monitor.py:53", f"torch.compile took {took:.2f} s in total")

    def _profile(self) -> None:
        settings = self.settings
        self.enter("profile")
        if settings.kv_bytes <= 0:
            self._break(BREAKAGES["kv_cache_none"])
        self.log.info("gpu_worker.py:563", f"Available KV cache memory: {settings.kv_bytes / GIB:.2f} GiB")
        if settings.kv_tokens < settings.model_len:
            self._break(BREAKAGES["kv_cache_too_small"])
        device = "GPU" if self.behaviour.platform == "cuda" else "CPU"
        self.log.info(
            "kv_cache_utils.py:2327",
            f"{device} KV cache size: {settings.kv_tokens:,} tokens, Maximum concurrency for {settings.model_len:,} "
            f"tokens per request: {settings.kv_tokens / settings.model_len:.2f}x",
        )

    def _graphs(self) -> None:
        self.enter("graphs")
        if not self.settings.flags["enforce-eager"]:
            size = self.behaviour.memory.graphs_bytes / GIB
            self.log.info("gpu_model_runner.py:6100", f"Graph capturing finished in 1 secs, took {size:.2f} GiB")

    def _break(self, breakage: Breakage) -> None:
        if self.log.name == "EngineCore":
            break_core(self.settings, breakage, self.log)
        break_api(self.settings, breakage)


def _dtype(settings: Settings) -> str:
    """The type that the model computes in."""
    names = {"auto": "bfloat16", "half": "float16", "float": "float32"}
    asked = str(settings.flags["dtype"])
    return names.get(asked, asked)
