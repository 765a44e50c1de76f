"""The winner under the worst that may come: every slot filled with the longest requests, for a bounded time.

A benchmark at the usual lengths can miss an engine that runs out of memory at full load an hour later. A soak that
ends with a dead engine, a hang or failing requests costs the configuration its place.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from autotune.engine.types import BootFailed
from autotune.load.measure import measure
from autotune.load.types import LoadSpec, Measurement, Target
from autotune.space.config import LaunchConfig
from autotune.store.models import BootRow
from autotune.store.store import Store
from autotune.tuner.engines import SOAK, BudgetSpent, Engines, Running
from autotune.tuner.judge import describe
from autotune.tuner.plan import Plan
from autotune.tuner.stop import StopFlag
from autotune.tuner.watch import Watch
from autotune.workload.lengths import Lengths
from autotune.workload.types import RequestShape, Workload

SOAK_S = {"cuda": 30.0, "cpu": 15.0}
MOST_IN_FLIGHT = 2048
SEED = 900_000_000


@dataclass(frozen=True, slots=True)
class Soaked:
    """``held`` is None where nothing can be said; ``reason`` says why it did not hold, or why nobody knows."""

    in_flight: int
    seconds: float
    held: bool | None
    reason: str = ""


class Soaker:
    """Soaks configurations of one study."""

    def __init__(self, plan: Plan, store: Store, engines: Engines, stop: StopFlag) -> None:
        self._plan = plan
        self._store = store
        self._engines = engines
        self._stop = stop

    @property
    def seconds(self) -> float:
        """How long the load lasts."""
        window_s = self._plan.settings.window_s
        return 3 * window_s if window_s else SOAK_S[self._plan.device.kind]

    def run(self, config: LaunchConfig, earlier: list[BootRow]) -> Soaked:
        """Soak a configuration on an engine of its own, unless an earlier run of the study has done it.

        Raises ``Interrupted``.
        """
        in_flight = self._in_flight(config)
        if any(b.role == SOAK and b.config_key == config.key() and b.points and not b.failure for b in earlier):
            return Soaked(in_flight, self.seconds, True)
        try:
            with self._engines.boot(config, role=SOAK) as running:
                reason = self._load(running, in_flight)
                return Soaked(in_flight, self.seconds, not reason, reason)
        except BootFailed as error:
            # It has booted before, so only a failure that names the configuration counts against it.
            held = False if error.failure.teaches else None
            return Soaked(in_flight, 0.0, held, describe(error.failure))
        except BudgetSpent as error:
            return Soaked(in_flight, 0.0, None, str(error))

    def _load(self, running: Running, in_flight: int) -> str:
        """What went wrong under the load; it is written down either way."""
        with Watch(running.engine).running() as watch:
            measurement = measure(
                Target(running.engine.base_url, running.engine.model_name),
                worst_case(self._plan.workload),
                LoadSpec.closed(in_flight, min_s=self.seconds, max_s=self.seconds, precision=0.0, warmup_min_s=1.0),
                seed=SEED,
                point_id=f"soak-{running.boot_id}",
                vocab_size=self._plan.model.vocab_size,
                stop=self._reason_to_stop(watch),
            )
        self._stop.check()
        failure = watch.failure or running.engine.verdict()
        if failure:
            self._engines.record_failure(running.boot_id, failure)
            return describe(failure)
        self._store.add_point(
            running.boot_id,
            prompt_seed=SEED,
            live={},
            value=None,
            measurement=measurement.to_json(),
            duration_s=self.seconds,
        )
        return _failed_requests(measurement)

    def _reason_to_stop(self, watch: Watch) -> Callable[[], str | None]:
        def reason() -> str | None:
            if self._stop():
                return "stopped on request"
            return str(watch.failure) if watch.failure else None

        return reason

    def _in_flight(self, config: LaunchConfig) -> int:
        """Every slot of the engine filled, and not less than the study's own load."""
        seqs, _ = self._plan.space.vllm_defaults.batch(self._plan.space.fixed.merged(config))
        slots = seqs if isinstance(seqs, int) else self._plan.concurrency
        return min(max(slots, self._plan.concurrency), MOST_IN_FLIGHT)


def worst_case(workload: Workload) -> Workload:
    """Only the longest requests of a workload, with nothing to share; texts of a person's own stay as they are."""
    shapes = [(s.input.high, s.output.high) for s in workload.shapes]
    longest = max([*shapes, *((r.input_tokens, r.output_tokens) for r in workload.trace)], key=sum, default=None)
    if longest is None:
        return workload
    shape = RequestShape("longest", Lengths.fixed(longest[0]), Lengths.fixed(longest[1]))
    return replace(workload, name=f"{workload.name}, longest", shapes=(shape,), trace=(), arrival=None)


def _failed_requests(measurement: Measurement) -> str:
    failed, ended = measurement.counts.failed, measurement.counts.failed + measurement.counts.completed
    if failed <= max(1, 0.005 * ended):
        return ""
    kinds = ", ".join(f"{f.count} x {f.kind}" for f in measurement.failures[:3])
    return f"{failed} of {ended} requests failed: {kinds}"
