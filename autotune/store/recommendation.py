"""What a study ends with: a launch config, the evidence for it and where it came from.

A ``Recommendation`` is one value that travels from the tuner to the store, the exports and the report;
``to_json`` and ``from_json`` are inverse. Only ``config`` was searched; ``fixed`` is what every engine of
the study was given as well, so a launcher passes both.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from autotune.space.config import LaunchConfig

SCHEMA_VERSION = 1

Verdict = Literal["adopt", "keep-incumbent", "keep-default", "nothing-feasible", "not-measured"]
Role = Literal["default", "incumbent", "finalist"]


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with its 95 % interval, in the unit that its holder names."""

    value: float
    low: float
    high: float

    @classmethod
    def around(cls, value: float, half: float) -> "Interval":
        """``value`` with ``half`` of the interval of its logarithm to each side."""
        return cls(value, value * math.exp(-half), value * math.exp(half))

    def as_gain(self) -> str:
        """A fraction in words, such as ``+41.2 % (+38.0 to +44.5)``."""
        low, mid, high = (f"{100 * x:+.1f}" for x in (self.low, self.value, self.high))
        return f"{mid} % ({low} to {high})"


@dataclass(frozen=True, slots=True)
class Racer:
    """One configuration of the final race.

    ``config`` is what it sets beyond the study's fixed flags. ``rounds`` are its visits in the objective's unit,
    ``value`` their mean; None where no round was whole. ``gain_over`` maps the default and each incumbent, by name,
    to the gain over it as a fraction. ``left`` says why it left the race.
    """

    name: str
    role: Role
    config: LaunchConfig
    rounds: tuple[float, ...]
    value: Interval | None
    gain_over: Mapping[str, Interval]
    left: str = ""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Racer":
        """The racer that ``asdict`` wrote."""
        return cls(
            name=data["name"],
            role=data["role"],
            config=_config(data["config"]),
            rounds=tuple(data["rounds"]),
            value=_interval(data["value"]),
            gain_over={name: Interval(**gain) for name, gain in data["gain_over"].items()},
            left=data["left"],
        )


@dataclass(frozen=True, slots=True)
class Part:
    """What one flag of the winner carries: the loss without it, measured in a race of its own.

    ``gain`` is a fraction of the winner without the flag, None where it does not start without it. ``kept`` is False
    for a flag that carries nothing and was dropped.
    """

    flag: str
    gain: Interval | None
    kept: bool


@dataclass(frozen=True, slots=True)
class Soak:
    """The load of longest requests that the exported configuration held, with so many in flight, for ``seconds``."""

    in_flight: int
    seconds: float


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
    quality: str = "not recorded"


@dataclass(frozen=True, slots=True)
class PrecisionQuality:
    """One precision class of a study: how it answers beside the model as published, and how fast it was.

    ``verdict`` is reference, within, over, unsure, no effect or not measured; ``reason`` says why. ``kl`` is in nats
    a token, ``greedy`` a share of decoded tokens. ``value`` is the best that the search measured with it, in the
    recommendation's unit. Of the reference, the comparison is that with its own repetition.
    """

    name: str
    verdict: str
    reason: str
    perplexity: float | None = None
    perplexity_ratio: Interval | None = None
    kl: Interval | None = None
    top1: Interval | None = None
    greedy: float | None = None
    weights_bytes: int | None = None
    kv_bytes_per_token: float | None = None
    seconds: float | None = None
    value: float | None = None


@dataclass(frozen=True, slots=True)
class GainSplit:
    """A gain in two factors, as fractions: ``equal`` at the baseline's precision, ``precision`` on top by changing it.

    ``raced`` says whether ``equal`` comes from the final race; else it is what the search measured.
    """

    equal: float
    precision: float
    raced: bool


@dataclass(frozen=True, slots=True)
class Recommendation:
    """``gain`` is best / baseline minus 1, from the final race only; None where nothing was raced. Where less is
    better (``direction``), a gain is below zero.

    ``nothing-feasible`` and ``not-measured`` recommend nothing: nothing gave what was asked, or vLLM's defaults have no
    figure that anything could be compared with.

    ``baseline`` and ``best`` are the objective in ``unit``, from the same race. ``racers`` is that race as a table.
    ``parts`` say which flags carry the gain, where the budget had room to measure that.
    ``variant`` is the checkpoint to serve where it is not the one that was tuned; ``provenance`` names it as well.
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
    racers: tuple[Racer, ...] = ()
    parts: tuple[Part, ...] = ()
    soak: Soak | None = None
    quality: tuple[PrecisionQuality, ...] = ()
    variant: str | None = None
    split: GainSplit | None = None
    direction: Literal["maximize", "minimize"] = "maximize"

    @property
    def recommends(self) -> bool:
        """Whether there is anything to launch."""
        return self.verdict not in ("nothing-feasible", "not-measured")

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
            racers=tuple(Racer.from_json(racer) for racer in data.get("racers", ())),
            parts=tuple(Part(p["flag"], _interval(p["gain"]), p["kept"]) for p in data.get("parts", ())),
            soak=Soak(**data["soak"]) if data.get("soak") else None,
            quality=tuple(_quality(entry) for entry in data.get("quality", ())),
            variant=data.get("variant"),
            split=GainSplit(**data["split"]) if data.get("split") else None,
            direction=data.get("direction", "maximize"),
        )

    def gain_text(self) -> str:
        """The gain in words, such as ``+41.2 % (95 % interval +38.0 to +44.5 %)``; it says so where less is better."""
        if self.gain is None:
            return "no gain was measured"
        low, mid, high = (f"{100 * x:+.1f}" for x in (self.gain.low, self.gain.value, self.gain.high))
        less = ", less is better" if self.direction == "minimize" else ""
        return f"{mid} % (95 % interval {low} to {high} %){less}"


def _config(data: Mapping[str, Any]) -> LaunchConfig:
    return LaunchConfig.of(dict(data["flags"]), dict(data["env"]))


def _quality(data: Mapping[str, Any]) -> PrecisionQuality:
    fields: dict[str, Any] = {n: Interval(**v) if isinstance(v, Mapping) else v for n, v in data.items()}
    return PrecisionQuality(**fields)


def _interval(data: Mapping[str, float] | None) -> Interval | None:
    return None if data is None else Interval(**data)
