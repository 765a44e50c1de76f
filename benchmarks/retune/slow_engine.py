"""Makes a vLLM environment slower on purpose, to see whether a re-tune notices.

Copied as ``sitecustomize.py`` into the environment's site-packages; the share stands in ``slow_share`` in its folder:
0.3 makes each step of the engine last 30 % longer. ``pace_ms`` beside it (0 without the file) is the least that a step
lasts before that: as with a device that computes while the CPU waits, the host's own unrest no longer shows in the
figures, and small differences can be seen on two cores.
"""

import importlib.abc
import importlib.util
import sys
import time
from pathlib import Path

MODULE = "vllm.v1.engine.core"
STEPS = ("step", "step_with_batch_queue")
FOLDER = Path(sys.prefix)
SHARE = float((FOLDER / "slow_share").read_text())
PACE_S = float((FOLDER / "pace_ms").read_text()) / 1000 if (FOLDER / "pace_ms").exists() else 0.0


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
    """Let one method of the engine take ``PACE_S`` or longer, and longer by ``SHARE`` than that."""
    original = getattr(core, name)

    def slower(self, *args, **kwargs):
        started = time.perf_counter()
        result = original(self, *args, **kwargs)
        took_s = time.perf_counter() - started
        time.sleep(max(PACE_S, took_s) * (1 + SHARE) - took_s)
        return result

    setattr(core, name, slower)


sys.meta_path.insert(0, Finder())
