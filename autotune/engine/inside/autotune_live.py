"""A scheduler for vLLM whose two limits can be lowered while the engine runs. Loaded by vLLM, never by the tuner.

``--scheduler-cls autotune_live.live_scheduler`` puts it in place: vLLM's own scheduler, asynchronous or not as
the configuration has it, with limits that follow a small JSON file. The file is named after the engine, in the
folder that AUTOTUNE_LIVE_DIR names: ``{"seqs": 64, "tokens": 2048, "serial": 3}``. It is looked at only when a
step begins with nothing running, so no request ever sees a limit change; the limits are capped by what the
engine booted with. What was applied is written beside it, as the answer.

vLLM's attribute that admits requests has moved: ``max_num_active_reqs`` where it exists, else
``max_num_running_reqs``. Where neither exists the scheduler refuses to start, and the tuner boots without it.
"""

import json
import os
from pathlib import Path
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

DIR_VARIABLE = "AUTOTUNE_LIVE_DIR"
ENGINE_VARIABLE = "AUTOTUNE_ENGINE"
TOKENS = "max_num_scheduled_tokens"
ADMITTING = ("max_num_active_reqs", "max_num_running_reqs")


class _FollowsFile:
    """Looks at the file before a step that begins with nothing running. Mixed in before a scheduler of vLLM's."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._admitting = next((name for name in ADMITTING if hasattr(self, name)), "")
        if not self._admitting or not hasattr(self, TOKENS):
            raise RuntimeError("autotune: this vLLM's scheduler has no limits that can be lowered")
        self._booted = {"seqs": getattr(self, self._admitting), "tokens": getattr(self, TOKENS)}
        self._asked = Path(os.environ[DIR_VARIABLE]) / f"{os.environ[ENGINE_VARIABLE]}.json"
        self._seen_ns = 0

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """One step; the limits may change before it, if nothing runs."""
        if not self.running:  # type: ignore[attr-defined]
            self._look()
        return super().schedule(*args, **kwargs)  # type: ignore[misc]

    def _look(self) -> None:
        try:
            changed_ns = os.stat(self._asked).st_mtime_ns
        except FileNotFoundError:
            return
        if changed_ns != self._seen_ns:
            self._seen_ns = changed_ns
            self._apply(json.loads(self._asked.read_text(encoding="utf-8")))

    def _apply(self, asked: dict[str, int | None]) -> None:
        applied = {name: min(asked.get(name) or booted, booted) for name, booted in self._booted.items()}
        setattr(self, self._admitting, applied["seqs"])
        setattr(self, TOKENS, applied["tokens"])
        answer = self._asked.with_suffix(".applied")
        written = answer.with_suffix(".writing")
        written.write_text(json.dumps({**applied, "serial": asked["serial"]}), encoding="utf-8")
        written.replace(answer)


class _LiveAsyncScheduler(_FollowsFile, AsyncScheduler):
    """vLLM's asynchronous scheduler with limits that follow a file."""


class _LiveScheduler(_FollowsFile, Scheduler):
    """vLLM's synchronous scheduler with limits that follow a file."""


def live_scheduler(*args: Any, **kwargs: Any) -> Any:
    """The scheduler that vLLM would have made, with limits that follow a file."""
    vllm_config = kwargs.get("vllm_config") or args[0]
    kind = _LiveAsyncScheduler if vllm_config.scheduler_config.async_scheduling else _LiveScheduler
    return kind(*args, **kwargs)
