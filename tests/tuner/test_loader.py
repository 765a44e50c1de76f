"""Loads on the stand-in: what limited it, its energy, and answers from a cache that the workload does not share."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from fake_vllm import make_fake_python
from fake_vllm.running import serve

from autotune.engine.engine import scrape
from autotune.load.capacity import judge_rate
from autotune.load.slo import Slo
from autotune.load.types import LoadSpec
from autotune.tuner.loader import Loader
from autotune.tuner.objective import Effort
from autotune.tuner.objectives import Asked, make_objective
from autotune.workload.arrivals import Poisson
from autotune.workload.lengths import Lengths
from autotune.workload.load import load_workload
from autotune.workload.types import RequestShape, Workload

QUICK = {"min_s": 1.0, "max_s": 1.5, "warmup_min_s": 0.5, "warmup_max_s": 2.0}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    python = make_fake_python(tmp_path_factory.mktemp("vllm") / "venv")
    with serve(python, "--max-num-seqs", "2", "--max-model-len", "320") as server:
        yield SimpleNamespace(
            base_url=f"http://127.0.0.1:{server.port}",
            model_name="tiny",
            pid=server.process.pid,
            metrics=lambda: scrape(server.port),
        )


def loader(engine: Any, seed: int, joules: list[float] | None = None, workload: Workload | None = None) -> Loader:
    readings = iter(joules or [])
    return Loader(
        engine,
        workload or load_workload("demo"),
        seed=seed,
        point_id="p",
        vocab_size=1000,
        limits=(2, 8192),
        joules=lambda: next(readings, None),
        stop=lambda: None,
    )


def test_a_load_says_what_limited_it_and_what_a_token_cost(engine: Any) -> None:
    loaded = loader(engine, 1, [100.0, 150.0]).measure(LoadSpec.closed(6, **QUICK))
    assert loaded.measurement.valid, loaded.measurement.problems
    assert loaded.limit is not None and loaded.limit.limit == "seqs", loaded.limit
    assert loaded.energy is not None and loaded.energy.joules == 50.0
    made = loaded.measurement.totals.output_tokens
    assert loaded.energy.joules_per_output_token == pytest.approx(50.0 / made, rel=0.1)
    assert loaded.facts()["energy"]["mean_w"] > 0


def test_no_counter_no_energy(engine: Any) -> None:
    assert loader(engine, 2).measure(LoadSpec.closed(2, **QUICK)).energy is None


def test_prompts_that_the_cache_knows_are_not_measured(engine: Any) -> None:
    load = LoadSpec.closed(2, **QUICK)
    assert loader(engine, 3).measure(load).measurement.valid
    again = loader(engine, 3).measure(load).measurement
    assert any("prefix-cache hit rate" in problem for problem in again.problems)


def test_the_rate_that_goodput_names_holds_and_a_third_more_does_not(engine: Any) -> None:
    slo = Slo("ttft", 0.8, 500)
    short = Workload("short", shapes=(RequestShape("s", Lengths.fixed(32), Lengths.fixed(8)),))
    bench = loader(engine, 4, workload=short)
    goodput = make_objective(Asked(objective="goodput", slos=(slo,)), None, 1, 1)
    effort = Effort(shortest_s=1.0, longest_s=2.0, precision=0.0, bracket=(20.0, 30.0), lag_limit_ms=50.0)
    read = goodput.take(bench, effort)
    assert read.value is not None, (read.problem, read.infeasible)
    assert read.details["capacity"]["probes"][0]["rate_per_s"] == 20.0

    def holds(rate_per_s: float) -> bool | None:
        load = LoadSpec.open(
            Poisson(rate_per_s), min_s=3.0, max_s=3.0, warmup_max_s=2.0, precision=0.0, lag_limit_ms=50
        )
        return judge_rate(bench.measure(load, tag=f"{rate_per_s}", slos=[slo]).measurement)[0]

    assert holds(0.9 * read.value) is True
    assert holds(1.3 * read.value) is not True
