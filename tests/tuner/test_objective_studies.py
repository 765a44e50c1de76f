"""Whole studies on the stand-in, one for each objective: direction, unit, infeasibility and files follow it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_vllm import make_fake_python, set_behaviour

pytestmark = pytest.mark.timeout(240)

SPACE = """
schema: 1
name: stand-in
parameters:
  max-num-seqs: {values: [2, default], ordered: true, why: "limits the batch"}
  enforce-eager: {values: [default, true], why: "slower by a third here"}
seeds:
  - {name: poor, flags: {max-num-seqs: 2}, why: "two requests at a time"}
"""


@pytest.fixture
def python(tmp_path: Path) -> Path:
    return make_fake_python(tmp_path / "venv")


def study(folder: Path, python: Path, *words: str) -> tuple[dict[str, Any], str]:
    (folder / "space.yaml").write_text(SPACE)
    fixed = ["--gpu", "cpu", "--space", "space.yaml", "--out", "out", "--window", "1s", "--study", "s", "--json"]
    command = [sys.executable, "-m", "autotune", "run", *fixed, "--vllm-python", str(python), *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads((folder / "out/best/result.json").read_text())
    assert json.loads(done.stdout) == found["recommendation"]
    return found, done.stderr


def test_latency_at_a_rate_that_a_poor_configuration_cannot_keep(tmp_path: Path, python: Path) -> None:
    found, told = study(tmp_path, python, "--objective", "latency", "--rate", "6", "--trials", "2")
    best = found["recommendation"]
    assert (best["unit"], best["direction"], best["verdict"]) == ("ms", "minimize", "keep-default")
    assert 500 < best["best"]["value"] < 3000 and "objective latency" in told and "Poisson 6 req/s" in told
    assert "cannot keep 6 requests per second" in told

    import optuna

    told_to_search = optuna.load_study(study_name="s", storage=f"sqlite:///{tmp_path}/out/study.db")
    assert told_to_search.direction is optuna.study.StudyDirection.MINIMIZE
    poor = told_to_search.trials[1]
    assert poor.constraints["starts"] > 0 and poor.value == told_to_search.trials[0].value


def test_goodput_is_a_rate_and_no_rate_is_said_plainly(tmp_path: Path, python: Path) -> None:
    set_behaviour(python, {"rules": [{"when": {"max-num-seqs": 2}, "slow_s": 3.0}]})
    words = ["--objective", "goodput", "--slo", "ttft_p80=2s", "--trials", "2"]
    found, told = study(tmp_path, python, *words)
    best = found["recommendation"]
    assert best["unit"] == "req/s" and best["best"]["value"] > 3
    blocks = found["trials"][0]["points"]
    assert [len(b["bracket"]) for b in blocks] == [2, 2]
    assert blocks[1]["capacity"]["probes"][0]["rate_per_s"] == pytest.approx(blocks[0]["bracket"][0])
    poor = found["trials"][1]["points"][0]
    assert poor["value"] is None and poor["capacity"]["rate_per_s"] is None
    assert "no rate meets ttft_p80=2000ms with 8% to spare; nearest miss:" in told


def test_pareto_ends_with_a_folder_for_each_mode(tmp_path: Path, python: Path) -> None:
    set_behaviour(python, {"rules": [{"when": {"enforce-eager": False}, "perf": {"step_s": 0.02}}]})
    space = SPACE.replace("max-num-seqs: 2}", "enforce-eager: true}")
    (tmp_path / "better.yaml").write_text(space)
    words = ["--objective", "pareto", "--concurrency", "16", "--trials", "2", "--space", "better.yaml"]
    found, told = study(tmp_path, python, *words)
    assert set(found["modes"]) == {"interactive", "balanced", "throughput"}
    assert found["recommendation"] == found["modes"]["balanced"]
    for mode in found["modes"]:
        assert {p.name for p in (tmp_path / "out" / mode).iterdir()} == {
            "vllm.yaml",
            "launch.sh",
            "recommendation.json",
        }
    assert found["modes"]["interactive"]["provenance"]["workload"] == "demo, 1 in flight"
    races = [t for t in found["trials"] if t["role"] == "final"]
    seeds = {p["prompt_seed"] for t in races for p in t["points"]}
    assert len(races) == 2 * len(seeds)  # the three races share their visits
    loads = [spot["load"] for spot in found["frontier"]]
    assert loads[0] == "1 in flight" and "16 in flight" in loads and "Frontier" in told
    rates = [spot["output_tokens_per_s"] for spot in found["frontier"]]
    assert rates == sorted(rates)


def test_where_nothing_meets_the_slo_there_is_no_figure_and_no_export(tmp_path: Path, python: Path) -> None:
    words = ["--objective", "cost", "--price-per-hour", "3.6", "--slo", "ttft_p80=1ms", "--trials", "1"]
    found, told = study(tmp_path, python, *words)
    best = found["recommendation"]
    assert (best["verdict"], best["best"], best["unit"]) == ("nothing-feasible", None, "$/Mtok")
    assert best["provenance"]["objective"] == "cost at 3.6 under ttft_p80=1ms"
    assert [p.name for p in (tmp_path / "out/best").iterdir()] == ["result.json"]
    assert "The nearest miss is vLLM defaults: ttft_p80=1ms missed by" in " ".join(best["reasons"])
    point = found["trials"][0]["points"][0]
    assert point["value"] is None and "ttft_p80=1ms missed by" in point["missed"] and point["limit"]["limit"]
    assert "misses the SLO" in told
