"""What a person asks of a run, from three places: options, AUTOTUNE_* variables, ``autotune.yaml``.

An option beats a variable, a variable beats the file, the file beats the default. The file's keys are the
options' names. Everything is checked here, before anything starts.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from autotune.errors import UsageError
from autotune.load.slo import Slo
from autotune.quality.levels import DEFAULT_LEVEL, find_level
from autotune.tuner.objectives import Asked, refuse_contradictions
from autotune.workload.arrivals import checked_rate

SAMPLERS = ("auto", "tpe", "random")
SETTINGS_FILE = Path("autotune.yaml")
DEFAULT_BUDGET = "30m"
SHORTEST_WINDOW_S = 0.5
LONGEST_S = 366 * 24 * 3600
MOST_COUNT = 65_536
MOST_SEED = 9_999
LEAST_PRICE, MOST_PRICE = 0.0001, 1_000_000.0

_DURATION = re.compile(r"(?:(?P<h>\d+(?:\.\d+)?)h)?(?:(?P<m>\d+(?:\.\d+)?)m)?(?:(?P<s>\d+(?:\.\d+)?)s?)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """One run as asked for; ``None`` means "choose for me". Times in seconds."""

    model: str | None = None
    gpu: str = "auto"
    objective: str = "throughput"
    slos: tuple[Slo, ...] = ()
    rate_per_s: float | None = None
    price_per_hour: float | None = None
    workload: str | None = None
    concurrency: int | None = None
    space: str = "auto"
    budget_s: float | None = None
    trials: int | None = None
    window_s: float | None = None
    race_window_s: float | None = None
    storage: str | None = None
    study: str | None = None
    out: Path | None = None
    seed: int = 0
    sampler: str = "auto"
    vllm_python: Path | None = None
    vllm_args: tuple[str, ...] = ()
    from_command: tuple[str, ...] = ()
    from_config: tuple[str, ...] = ()
    allow_unverified_precision: bool = False
    max_quality_loss: str = DEFAULT_LEVEL
    quality_data: Path | None = None
    variants: tuple[str, ...] = ()
    warm_boot: bool | None = None
    live_limits: bool | None = None
    ablation: bool = True

    @property
    def asked(self) -> Asked:
        """What objectives read."""
        return Asked(
            objective=self.objective,
            slos=self.slos,
            rate_per_s=self.rate_per_s,
            price_per_hour=self.price_per_hour,
            concurrency=self.concurrency,
        )


class _File(BaseModel):
    """The keys of ``autotune.yaml``; the same names as the options."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = None
    gpu: str | int | None = None
    objective: str | None = None
    slo: str | list[str] | None = None
    rate: float | None = None
    price_per_hour: float | None = None
    workload: str | None = None
    concurrency: int | None = None
    space: str | None = None
    budget: str | int | float | None = None
    trials: int | None = None
    window: str | int | float | None = None
    race_window: str | int | float | None = None
    storage: str | None = None
    study: str | None = None
    out: str | None = None
    seed: int | None = None
    sampler: str | None = None
    vllm_python: str | None = None
    vllm_arg: list[str] | None = None
    from_command: list[str] | None = None
    from_config: list[str] | None = None
    allow_unverified_precision: bool | None = None
    max_quality_loss: str | None = None
    quality_data: str | None = None
    variant: list[str] | None = None
    warm_boot: bool | None = None
    live_limits: bool | None = None
    ablation: bool | None = None


def resolve_settings(given: Mapping[str, Any], file: Path = SETTINGS_FILE) -> RunSettings:
    """The run's settings; ``given`` holds options and variables, None where absent.

    Raises ``UsageError`` naming the option or the file's key and its value.
    """
    values = {**_read_file(file), **{k: v for k, v in given.items() if v not in (None, [], ())}}
    _refuse_empty(values)
    settings = RunSettings(
        model=values.get("model"),
        gpu=str(values.get("gpu", "auto")),
        objective=values.get("objective", "throughput"),
        slos=_slos(values.get("slo", ())),
        rate_per_s=None if values.get("rate") is None else checked_rate(values["rate"]),
        price_per_hour=_price(values.get("price_per_hour")),
        workload=values.get("workload"),
        concurrency=_positive("concurrency", values.get("concurrency")),
        space=values.get("space", "auto"),
        budget_s=_budget(values),
        trials=_trials(values),
        window_s=read_window("window", values.get("window")),
        race_window_s=read_window("race-window", values.get("race_window")),
        storage=values.get("storage"),
        study=_study_name(values.get("study")),
        out=_path(values.get("out")),
        seed=_seed(values.get("seed", 0)),
        sampler=_one_of("sampler", values.get("sampler", "auto"), SAMPLERS),
        vllm_python=_path(values.get("vllm_python")),
        vllm_args=tuple(values.get("vllm_arg", ())),
        from_command=tuple(values.get("from_command", ())),
        from_config=tuple(values.get("from_config", ())),
        allow_unverified_precision=bool(values.get("allow_unverified_precision", False)),
        max_quality_loss=find_level(str(values.get("max_quality_loss", DEFAULT_LEVEL))).name,
        quality_data=_path(values.get("quality_data")),
        variants=tuple(values.get("variant", ())),
        warm_boot=values.get("warm_boot"),
        live_limits=values.get("live_limits"),
        ablation=values.get("ablation") is not False,
    )
    refuse_contradictions(settings.asked)
    _refuse_windows_without_time(settings)
    return settings


def _refuse_empty(values: Mapping[str, Any]) -> None:
    """An option without text is most often a shell variable that was not set; a default in its place misleads."""
    for name, value in values.items():
        if value == "" or (isinstance(value, (list, tuple)) and "" in value):
            raise UsageError(f"--{name.replace('_', '-')} is empty. Give it a value, or leave it out for the default.")


def parse_duration(text: str | int | float, option: str = "budget") -> float:
    """Seconds from ``90``, ``90s``, ``5m`` or ``1h30m``. Raises ``UsageError`` that names the option."""
    match = _DURATION.fullmatch(str(text).strip().lower())
    parts = {} if match is None else {k: float(v) for k, v in match.groupdict().items() if v}
    if not parts:
        raise UsageError(f"--{option} {text!r} is no duration. Write it like 90s, 20m or 1h30m.")
    seconds = parts.get("h", 0) * 3600 + parts.get("m", 0) * 60 + parts.get("s", 0)
    if seconds > LONGEST_S:
        raise UsageError(f"--{option} {text!r} is longer than a year. Write it like 90s, 20m or 1h30m.")
    return seconds


def _trials(values: Mapping[str, Any]) -> int | None:
    """Trials of the search; none at all makes sense where incumbents race."""
    if values.get("trials") != 0:
        return _positive("trials", values.get("trials"))
    if not (values.get("from_command") or values.get("from_config")):
        raise UsageError(
            "--trials 0 races what is given, without a search, and nothing is given. "
            "Add --from-command or --from-config, or ask for --trials 1 or more."
        )
    return 0


def _budget(values: Mapping[str, Any]) -> float | None:
    given = values.get("budget")
    if given is None:
        return None if values.get("trials") is not None else parse_duration(DEFAULT_BUDGET)
    seconds = parse_duration(given)
    if seconds <= 0:
        raise UsageError(f"--budget {given!r} leaves no time. Give at least a minute, such as --budget 20m.")
    return seconds


def read_window(option: str, given: str | float | None) -> float | None:
    """Seconds of a window, None where it was not given. Raises ``UsageError`` for one that is too short."""
    if given is None:
        return None
    seconds = parse_duration(given, option)
    if seconds < SHORTEST_WINDOW_S:
        raise UsageError(f"--{option} {given} is too short to measure anything. Give {SHORTEST_WINDOW_S:g}s or more.")
    return seconds


def _refuse_windows_without_time(settings: RunSettings) -> None:
    """A study measures the defaults once and races them and another in two rounds, all behind boots."""
    window_s = settings.window_s or 0.0
    least_s = window_s + 4 * (settings.race_window_s or window_s)
    if settings.budget_s is not None and least_s >= settings.budget_s:
        raise UsageError(
            f"--budget {settings.budget_s:.12g}s has no room for the windows: the defaults and a race take "
            f"{least_s:.0f} s in them alone. Give a longer --budget, or a shorter --window or --race-window."
        )


def _read_file(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        data = _underscored(yaml.safe_load(file.read_text(encoding="utf-8")) or {})
        return _File.model_validate(data).model_dump(exclude_none=True)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"{file} cannot be read: {' '.join(str(error).split())}") from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"]) or "the file"
        allowed = ", ".join(_File.model_fields)
        raise UsageError(f"{file}: {key} = {first['input']!r}: {first['msg'].lower()}. Keys are: {allowed}.") from error


def _underscored(data: Any) -> Any:
    """Keys may be written like the options, with dashes."""
    return {str(k).replace("-", "_"): v for k, v in data.items()} if isinstance(data, dict) else data


def _slos(given: str | tuple[str, ...] | list[str]) -> tuple[Slo, ...]:
    """SLOs in the order given."""
    slos = tuple(dict.fromkeys(Slo.parse(text) for text in ([given] if isinstance(given, str) else given)))
    limits = [(slo.metric, slo.share) for slo in slos]
    twice = next((slo for slo in slos if limits.count((slo.metric, slo.share)) > 1), None)
    if twice is not None:
        raise UsageError(f"--slo {twice} stands beside another limit for the same figure. Give one of them.")
    return slos


def _price(value: float | None) -> float | None:
    if value is not None and not LEAST_PRICE <= value <= MOST_PRICE:
        raise UsageError(
            f"--price-per-hour {value:.12g} is no price. Give {LEAST_PRICE:g} to {MOST_PRICE:.0f}, such as 2.50."
        )
    return value


def _one_of(option: str, value: str, allowed: tuple[str, ...]) -> str:
    if value in allowed:
        return value
    raise UsageError(f"--{option} {value!r} is unknown. Use one of: {', '.join(allowed)}.")


def _positive(option: str, value: Any) -> int | None:
    if value is None:
        return None
    if not 1 <= int(value) <= MOST_COUNT:
        raise UsageError(f"--{option} {value} is out of range. Give 1 to {MOST_COUNT}.")
    return int(value)


def _seed(value: Any) -> int:
    if not 0 <= int(value) <= MOST_SEED:
        raise UsageError(f"--seed {value} is out of range. Give 0 to {MOST_SEED}.")
    return int(value)


def _study_name(value: str | None) -> str | None:
    if value is not None and not re.fullmatch(r"\w[\w.@:+-]{0,199}", value):
        raise UsageError(f"--study {value!r} cannot be a folder name. Use letters, digits, dot, _ and -.")
    return value


def _path(value: str | Path | None) -> Path | None:
    return None if value is None else Path(value).expanduser()
