"""What a study ends with: a launch config, the evidence for it and where it came from.

A ``Recommendation`` is one value that travels from the tuner to the store, the exports and the report;
``to_json`` and ``from_json`` are inverse. Only ``config`` was searched; ``fixed`` is what every engine of
the study was given as well, so a launcher passes both.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from autotune.space.config import LaunchConfig

SCHEMA_VERSION = 1

Verdict = Literal["adopt", "keep-default", "nothing-feasible"]


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with its 95 % interval, in the unit that its holder names."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where and when a recommendation was measured, and when it stops being true."""

    study: str
    measured_at: str
    autotune_version: str
    vllm_version: str
    vllm_distribution: str
    host_fingerprint: str
    device: str
    driver: str
    model: str
    model_revision: str
    workload: str
    objective: str
    retune_when: str


@dataclass(frozen=True, slots=True)
class Recommendation:
    """``gain`` is best / baseline minus 1, from the final race only; None where nothing was raced.

    ``baseline`` and ``best`` are the objective in ``unit``, from the same race.
    """

    verdict: Verdict
    config: LaunchConfig
    fixed: LaunchConfig
    unit: str
    baseline: Interval | None
    best: Interval | None
    gain: Interval | None
    reasons: tuple[str, ...]
    boot_s: float | None
    provenance: Provenance

    @property
    def launch(self) -> LaunchConfig:
        """Everything that a launcher passes."""
        return self.fixed.merged(self.config)

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"schema_version": SCHEMA_VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Recommendation":
        """The recommendation that ``to_json`` wrote. Raises ``ValueError`` for another schema."""
        if data.get("schema_version") != SCHEMA_VERSION:
            raise ValueError(f"schema_version {data.get('schema_version')!r}, expected {SCHEMA_VERSION}")
        return cls(
            verdict=data["verdict"],
            config=_config(data["config"]),
            fixed=_config(data["fixed"]),
            unit=data["unit"],
            baseline=_interval(data["baseline"]),
            best=_interval(data["best"]),
            gain=_interval(data["gain"]),
            reasons=tuple(data["reasons"]),
            boot_s=data["boot_s"],
            provenance=Provenance(**data["provenance"]),
        )

    def gain_text(self) -> str:
        """The gain in words, such as ``+41.2 % (95 % interval +38.0 to +44.5 %)``."""
        if self.gain is None:
            return "no gain was measured"
        low, mid, high = (f"{100 * x:+.1f}" for x in (self.gain.low, self.gain.value, self.gain.high))
        return f"{mid} % (95 % interval {low} to {high} %)"


def _config(data: Mapping[str, Any]) -> LaunchConfig:
    return LaunchConfig.of(dict(data["flags"]), dict(data["env"]))


def _interval(data: Mapping[str, float] | None) -> Interval | None:
    return None if data is None else Interval(**data)
