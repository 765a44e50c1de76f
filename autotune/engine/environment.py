"""The command line and the environment of an engine.

The environment is the caller's, with what would falsify or endanger a study taken out, and a fixed set put
in. It must not differ between the boots of a study, except for the engine's mark, which vLLM does not know:
vLLM hashes the ``VLLM_*`` variables into the key of its compile cache, so that a changing one would make
every boot compile anew.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from autotune.engine.process import ENGINE_MARK, RUN_MARK, TUNER_MARK, tuner_mark
from autotune.engine.types import EngineSpec

HOST = "127.0.0.1"

# What the ``vllm`` command does. Like it, it must not take a folder named vllm in the working folder for
# vLLM.
MAIN = (
    "import sys; sys.path[:] = [p for p in sys.path if p]; sys.argv[0] = 'vllm'; "
    "from vllm.entrypoints.cli.main import main; main()"
)

# Each makes an engine slower, chattier or different from the one that will be launched, or points it at the
# network.
STRIPPED = (
    "CUDA_LAUNCH_BLOCKING",
    "NCCL_DEBUG",
    "PORT",
    "TORCH_COMPILE_DEBUG",
    "TORCH_LOGS",
    "TORCH_SHOW_CPP_STACKTRACES",
    "VLLM_API_KEY",
    "VLLM_CONFIGURE_LOGGING",
    "VLLM_DEBUG_LOG_API_SERVER_RESPONSE",
    "VLLM_DISABLE_COMPILE_CACHE",
    "VLLM_ENABLE_STARTUP_PLAN",
    "VLLM_LOGGING_CONFIG_PATH",
    "VLLM_LOGGING_LEVEL",
    "VLLM_LOGGING_PREFIX",
    "VLLM_LOGGING_STREAM",
    "VLLM_LOG_STATS_INTERVAL",
    "VLLM_PORT",
    "VLLM_TORCH_PROFILER_DIR",
    "VLLM_TRACE_FUNCTION",
)

# Flags that say where an engine listens and to whom it answers: ours alone to set while it is measured.
OUR_FLAGS = (
    "api-key",
    "host",
    "port",
    "root-path",
    "served-model-name",
    "ssl-ca-certs",
    "ssl-certfile",
    "ssl-keyfile",
    "uds",
)


def engine_environment(spec: EngineSpec, engine_id: str) -> dict[str, str]:
    """The whole environment for one engine."""
    base = os.environ if spec.environ is None else spec.environ
    env = {name: value for name, value in base.items() if name not in STRIPPED}
    # Distributed set-up would bind to the machine's outer address otherwise; a person's own choice stands.
    env.setdefault("VLLM_HOST_IP", HOST)
    env.setdefault("GLOO_SOCKET_IFNAME", "lo")
    env |= {
        "DO_NOT_TRACK": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CACHE_ROOT": str(spec.cache_root.absolute()),
        # Opens /server_info and /reset_prefix_cache, on the loopback address only.
        "VLLM_SERVER_DEV_MODE": "1",
        # Without it setproctitle writes process titles over the marks by which a family is found.
        "SPT_NOENV": "1",
        # vLLM starts helpers with `python -m vllm…`, which would take a folder named vllm in the working folder.
        "PYTHONSAFEPATH": "1",
    }
    if Path(spec.model).is_dir():
        env |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    if spec.device is not None:
        env["CUDA_VISIBLE_DEVICES"] = spec.device
    marks = {RUN_MARK: spec.run_id, TUNER_MARK: tuner_mark(), ENGINE_MARK: engine_id}
    return env | dict(spec.launch().env) | marks


def without_mark(env: Mapping[str, str]) -> dict[str, str]:
    """The environment less the engine's own mark: equal for all engines that may share a warm server."""
    return {name: value for name, value in env.items() if name != ENGINE_MARK}


def served_name(spec: EngineSpec, engine_id: str) -> str:
    """The name under which the engine serves: proof that an answer comes from this very boot."""
    return f"{Path(spec.model).name}-{engine_id}"


def serve_arguments(spec: EngineSpec, engine_id: str, port: int) -> list[str]:
    """``serve MODEL`` with all its flags: what follows the program's name."""
    flags = spec.launch().without(*OUR_FLAGS).argv()
    ours = ["--host", HOST, "--port", str(port), "--served-model-name", served_name(spec, engine_id)]
    return ["serve", spec.model, *flags, *ours]


def engine_command(spec: EngineSpec, engine_id: str, port: int) -> list[str]:
    """The full command line of a plain boot."""
    arguments = serve_arguments(spec, engine_id, port)
    return [*spec.command, *arguments[1:]] if spec.command else [str(spec.install.python), "-c", MAIN, *arguments]
