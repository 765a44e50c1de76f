"""Lower max-num-seqs and max-num-batched-tokens inside a running engine.

    spec = with_live_limits(spec)
    with boot(spec) as engine:
        applied = set_limits(engine, LiveLimits(seqs=64, tokens=2048))

A boot costs a minute, a load some seconds: with limits that move, one boot gives many points. They can only
be lowered, below what the engine booted with, and only while no request runs. Buffers and CUDA graphs stay as
booted, so that a live point is close to, not equal to, what an engine booted with the limits does.
"""

import json
import os
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from autotune.engine import probe
from autotune.engine.engine import Engine
from autotune.engine.probe import ProbeError
from autotune.engine.types import EngineSpec
from autotune.errors import AutotuneError
from autotune.space.config import LaunchConfig

MODULE = "autotune_live"
SCHEDULER = f"{MODULE}.live_scheduler"
DIR_VARIABLE = "AUTOTUNE_LIVE_DIR"
INSIDE = Path(__file__).parent / "inside"
ANSWER_S = 20.0
POLL_S = 0.1


class LiveUnavailable(AutotuneError):
    """This engine's limits cannot be moved; measure it as it booted."""


@dataclass(frozen=True, slots=True)
class LiveLimits:
    """Limits to run under; None stands for what the engine booted with."""

    seqs: int | None = None
    tokens: int | None = None


def with_live_limits(spec: EngineSpec) -> EngineSpec:
    """The spec of an engine whose limits can be moved.

    Raises ``LiveUnavailable`` where the configuration brings a scheduler of its own.
    """
    if spec.launch().get("scheduler-cls") is not None:
        raise LiveUnavailable("the configuration brings its own scheduler")
    folder = spec.log_path.parent / "live"
    folder.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join(filter(None, [str(INSIDE), (spec.environ or os.environ).get("PYTHONPATH", "")]))
    ours = LaunchConfig.of({"scheduler-cls": SCHEDULER}, {DIR_VARIABLE: str(folder.resolve()), "PYTHONPATH": path})
    return replace(spec, fixed=spec.fixed.merged(ours))


def has_live_limits(spec: EngineSpec) -> bool:
    """Whether ``with_live_limits`` made this spec."""
    return spec.launch().get("scheduler-cls") == SCHEDULER


def blames_live_limits(log_path: Path) -> bool:
    """Whether a failed boot's log names our scheduler as a place where it failed."""
    try:
        text = log_path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return any(
        words in text for words in (f'{MODULE}.py", line', f"No module named '{MODULE}'", "RuntimeError: autotune:")
    )


def set_limits(engine: Engine, limits: LiveLimits, *, wait_s: float = 0.0) -> LiveLimits:
    """Move the limits of an idle engine and return those that it runs under now, read back from it.

    Requests that a load left behind get ``wait_s`` seconds to end. Raises ``LiveUnavailable`` where requests are
    still running or the engine does not answer.
    """
    _await_idle(engine, wait_s)
    asked = Path(dict(engine.spec.launch().env)[DIR_VARIABLE]) / f"{engine.engine_id}.json"
    serial = time.time_ns()
    _write(asked, {**asdict(limits), "serial": serial})
    try:
        probe.complete(engine.port, engine.model_name, limit_s=ANSWER_S)
    except ProbeError as error:
        raise LiveUnavailable(f"the engine does not answer: {error}") from error
    return _read(asked.with_suffix(".applied"), serial)


def _await_idle(engine: Engine, wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            pending = engine.metrics().pending
        except ProbeError as error:
            raise LiveUnavailable(f"the engine does not answer: {error}") from error
        if not pending:
            return
        if time.monotonic() >= deadline:
            raise LiveUnavailable("requests are running; limits change only while none does")
        time.sleep(POLL_S)


def _write(path: Path, content: dict[str, int | None]) -> None:
    """By rename, so that the scheduler never reads half a file."""
    written = path.with_suffix(".asking")
    written.write_text(json.dumps(content), encoding="utf-8")
    written.replace(path)


def _read(path: Path, serial: int) -> LiveLimits:
    try:
        answer = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LiveUnavailable("the engine did not take the limits") from error
    if answer["serial"] != serial:
        raise LiveUnavailable("the engine did not take the limits: its last answer is an earlier one")
    return LiveLimits(answer["seqs"], answer["tokens"])
