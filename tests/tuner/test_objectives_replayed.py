"""Ends of studies with other objectives than throughput, through the real tuner on a replayed machine."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_vllm import make_fake_python
from replayed_machine import EMPTY, FakeEngine, Machine, install, settings_for

from autotune.load.slo import Slo
from autotune.report.records import trial_records
from autotune.space.config import LaunchConfig
from autotune.store.recommendation import Recommendation
from autotune.store.store import Store
from autotune.tuner import trials
from autotune.tuner.frontier import frontier
from autotune.tuner.objective import Reading
from autotune.tuner.plan import Plan
from autotune.tuner.points import Point
from autotune.tuner.prepare import prepare
from autotune.tuner.run import show_frontier, write_result
from autotune.tuner.session import Session
from autotune.tuner.settings import RunSettings
from autotune.tuner.tune import Tuner

SPACE = """
schema: 1
name: replayed
parameters:
  max-num-seqs: {values: [2, default], why: "few at a time answer sooner"}
  block-size: {values: [default, 32], why: "fast with many"}
seeds:
  - {name: few, flags: {max-num-seqs: 2}, why: "x"}
  - {name: many, flags: {block-size: 32}, why: "x"}
"""
TTFT = Slo("ttft", 0.95, 500)
Read = Callable[[LaunchConfig], Reading]
FEW, MANY = LaunchConfig.of({"max-num-seqs": 2}), LaunchConfig.of({"block-size": 32})


@pytest.fixture
def settings(tmp_path: Path) -> RunSettings:
    return settings_for(tmp_path, make_fake_python(tmp_path / "venv"), SPACE, trials=3, ablation=False)


def run(settings: RunSettings, read: Read, monkeypatch: pytest.MonkeyPatch) -> tuple[Recommendation, Tuner, Machine]:
    machine = Machine()
    install(machine, monkeypatch)

    def take(engine: FakeEngine, plan: Plan, *_: Any, **__: Any) -> Point:
        machine.pass_time(10.0)
        return Point(read(engine.spec.config), 10.0)

    monkeypatch.setattr(trials, "take_point", take)
    plan = prepare(settings)
    plan.folder.create()
    store = Store.open(plan.storage)
    try:
        tuner = Tuner(plan, Session.open(plan, store), machine, machine.stop, lambda: machine.at)
        found = tuner.run()
        write_result(plan, store, found, tuner.modes)
        machine.notes += show_frontier(plan, store, tuner.modes)
        return found, tuner, machine
    finally:
        store.close()


def few(config: LaunchConfig) -> bool:
    return config.get("max-num-seqs") == 2


def many(config: LaunchConfig) -> bool:
    return config.get("block-size") == 32


def test_less_is_better_all_the_way(settings: RunSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(config: LaunchConfig) -> Reading:
        return Reading(measurement=EMPTY, value=80.0 if many(config) else 120.0 if few(config) else 100.0, value_se=1.0)

    found, _, machine = run(replace(settings, objective="latency", rate_per_s=4.0), read, monkeypatch)
    assert (found.verdict, found.config, found.unit, found.direction) == ("adopt", MANY, "ms", "minimize")
    assert found.gain is not None and found.gain.value == pytest.approx(-0.2) and found.gain.low < -0.2
    assert found.gain_text().endswith("less is better")
    assert found.provenance.objective == "latency at 4" and "Poisson 4 req/s" in found.provenance.workload
    assert next(r for r in found.racers if r.config == MANY).gain_over["default"].value == pytest.approx(-0.2)
    assert found == Recommendation.from_json(found.to_json())
    assert any("100 ms" in note for note in machine.notes)


def test_a_default_that_misses_the_slo_does_not_race(settings: RunSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(config: LaunchConfig) -> Reading:
        excess = -0.2 if few(config) else -0.04 if many(config) else 0.3
        return Reading(measurement=EMPTY, value=900.0, value_se=1.0, violations={str(TTFT): excess})

    found, _, machine = run(replace(settings, slos=(TTFT,)), read, monkeypatch)
    assert (found.verdict, found.config, found.gain) == ("adopt", FEW, None), "block-size 32 has 4 % to spare, not 8"
    reasons = " ".join(found.reasons)
    assert "vLLM's defaults are out: ttft_p95=500ms missed by 30 %" in reasons
    assert "8% of each limit to spare" in reasons
    assert any("misses the SLO" in note for note in machine.notes)


def test_a_finalist_that_misses_the_slo_in_the_race_loses(
    settings: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    visits = 0

    def read(config: LaunchConfig) -> Reading:
        nonlocal visits
        visits += few(config)
        excess = 0.01 if few(config) and visits > 1 else -0.5
        return Reading(
            measurement=EMPTY, value=2000.0 if few(config) else 1000.0, value_se=1.0, violations={str(TTFT): excess}
        )

    found, _, _ = run(replace(settings, slos=(TTFT,), trials=2), read, monkeypatch)
    assert found.verdict == "keep-default"
    assert "left the race: no figure in the race: ttft_p95=500ms missed by 1 %" in " ".join(found.reasons)


def test_no_rate_for_anybody_ends_without_an_export(settings: RunSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(config: LaunchConfig) -> Reading:
        short = 0.2 if few(config) else 0.5
        return Reading(
            measurement=EMPTY, infeasible=f"no rate meets it; nearest miss {short}", violations={"slo": short}
        )

    assert settings.out is not None
    (settings.out / "best").mkdir(parents=True)
    (settings.out / "best/launch.sh").write_text("of an earlier end of the study")
    found, _, machine = run(replace(settings, objective="goodput", slos=(TTFT,)), read, monkeypatch)
    assert found.verdict == "nothing-feasible" and found.best is None and found.unit == "req/s"
    assert "The nearest miss is --max-num-seqs 2: no rate meets it; nearest miss 0.2" in " ".join(found.reasons)
    assert set(machine.roles()) == {"baseline", "trial"}
    assert [p.name for p in (settings.out / "best").iterdir()] == ["result.json"]


def level(n: int, rate: float) -> dict[str, Any]:
    """A load's record; at 500 tok/s it was clearly worse and ended before any request did."""
    ended = 0 if rate == 500 else 20
    figures = {"output_tokens_per_s": rate, "ttft_ms": 1e4 * n / rate, "tpot_ms": 1e3 * n / rate}
    known = {"ttft_ms": {"n": ended}, "tpot_ms": {"n": ended}}
    return {"load": f"{n} in flight", "violations": {}, "measurement": known} | (
        figures if ended else dict(figures, ttft_ms=0.0, tpot_ms=0.0)
    )


def test_pareto_ends_with_one_configuration_for_each_mode(
    settings: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(config: LaunchConfig) -> Reading:
        default = (100.0, 400.0, 1000.0)
        rates = (150.0, 400.0, 500.0) if few(config) else (90.0, 440.0, 1500.0) if many(config) else default
        names = ("interactive", "balanced", "throughput")
        levels = [level(n, rate) for n, rate in zip((2, 8, 32), rates, strict=True)]
        value = float(rates[0] * rates[1] * rates[2]) ** (1 / 3)
        aspects = dict(zip(names, rates, strict=True))
        return Reading(measurement=EMPTY, value=value, value_se=1.0, aspects=aspects, details={"levels": levels})

    found, tuner, machine = run(replace(settings, objective="pareto"), read, monkeypatch)
    picks = {name: mode.config for name, mode in tuner.modes.items()}
    assert picks == {"interactive": FEW, "balanced": MANY, "throughput": MANY}
    assert found == tuner.modes["balanced"]
    gains = {name: round(mode.gain.value, 2) for name, mode in tuner.modes.items() if mode.gain}
    assert gains == {"interactive": 0.5, "balanced": 0.1, "throughput": 0.5}
    assert tuner.modes["interactive"].provenance.objective == "pareto/interactive"
    assert tuner.modes["interactive"].provenance.workload == "demo, 2 in flight"
    assert settings.out is not None
    for name in picks:
        assert {p.name for p in (settings.out / name).iterdir()} == {"vllm.yaml", "launch.sh", "recommendation.json"}
    row = Store.open(f"sqlite:///{settings.out}/study.db").run("s")
    assert row is not None
    races = [record for record in trial_records(row) if record["role"] == "final"]
    assert len(races) == 8, "the races of two modes with equal racers share their visits"
    spots = frontier(prepare(settings), row)
    assert (spots[0].load, spots[0].config) == ("2 in flight", "--max-num-seqs 2")
    assert (spots[-1].load, spots[-1].config) == ("32 in flight", "--block-size 32")
    assert all(spot.ttft_ms > 0 for spot in spots)
    assert any("Frontier" in note for note in machine.notes)
