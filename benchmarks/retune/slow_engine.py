"""Makes a vLLM environment slower on purpose, to see whether a re-tune notices.

Copied as ``sitecustomize.py`` into the environment's site-packages; the share stands in ``slow_share`` in its folder:
0.3 pauses each step of the engine for 30 % of the time that the step took.
"""

import importlib.abc
import importlib.util
import sys
import time
from pathlib import Path

MODULE = "vllm.v1.engine.core"
STEPS = ("step", "step_with_batch_queue")
SHARE = float((Path(sys.prefix) / "slow_share").read_text())


class Finder(importlib.abc.MetaPathFinder):
    """Wraps the engine's steps as soon as their module is imported."""

    def find_spec(self, name, path, target=None):
        """The module's own spec with the wrapping behind its loading."""
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            for step in STEPS:
                slow_down(module.EngineCore, step)

        spec.loader.exec_module = exec_module
        return spec


def slow_down(core, name):
    """Let one method of the engine take longer by ``SHARE``."""
    original = getattr(core, name)

    def slower(self, *args, **kwargs):
        started = time.perf_counter()
        result = original(self, *args, **kwargs)
        time.sleep(SHARE * (time.perf_counter() - started))
        return result

    setattr(core, name, slower)


sys.meta_path.insert(0, Finder())
