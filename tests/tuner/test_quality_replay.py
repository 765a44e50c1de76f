"""Twenty searches over figures measured on real vLLM: whatever the seed, no rejected precision is ever a finalist.

Perplexity, KL and agreement are those of SmolLM2-135M on vLLM 0.32's CPU backend, over 2,884 positions; their intervals
are taken as a fifth to each side, and speeds are made up so that every wrong value is faster than every right one.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from autotune.engine.effect import Effect
from autotune.quality.compare import Comparison, Estimate
from autotune.quality.reading import TOP, Prompts, Reading, Scores
from autotune.search.domain import Domain
from autotune.search.study import StudySearcher, open_study
from autotune.search.surrogate import make_sampler
from autotune.search.types import Feasibility, Outcome, Suggestion
from autotune.space.config import LaunchConfig
from autotune.space.parameters import Parameter, SearchSpace
from autotune.store.store import Store
from autotune.tuner.precision import PrecisionClass
from autotune.tuner.quality import QualityGuard
from autotune.tuner.quality_report import quality_of

# perplexity, KL in nats, same token, greedy tokens equal
MEASURED = {
    (): (15.4752, 0.0, 1.0, 1.0),
    (("kv-cache-dtype", "fp8"),): (16.0216, 0.0212, 0.910, 0.483),
    (("kv-cache-dtype", "fp8_e5m2"),): (17.3724, 0.0857, 0.824, 0.267),
    (("kv-cache-dtype", "int8_per_token_head"),): (262_463.0, 3.30, 0.010, 0.008),
    (("kv-cache-dtype", "int4_per_token_head"),): (262_463.0, 3.30, 0.010, 0.008),
}
KV = ("fp8", "fp8_e5m2", "int8_per_token_head", "int4_per_token_head")
SILENT = "int8_per_channel_weight_only"
SPACE = SearchSpace(
    "replay",
    (
        Parameter("max-num-seqs", (8, 32, None), "live", ordered=True),
        Parameter("kv-cache-dtype", (None, *KV), precision=True),
        Parameter("quantization", (None, SILENT), precision=True),
    ),
)
SPEED = {"fp8": 1.1, "fp8_e5m2": 1.3, "int8_per_token_head": 2.0, "int4_per_token_head": 2.2}
EMPTY = Scores(
    np.zeros(0, np.int32), np.zeros(0, np.float32), np.zeros((0, TOP), np.int32), np.zeros((0, TOP), np.float32),
    np.zeros(0, np.int32),
)  # fmt: skip


def recorded(flags: tuple[tuple[str, Any], ...]) -> Comparison:
    perplexity, kl, same, greedy = MEASURED[flags]
    reference = MEASURED[()][0]
    rise = perplexity / reference - 1
    return Comparison(
        positions=2884,
        perplexity=perplexity,
        reference_perplexity=reference,
        perplexity_ratio=Estimate(1 + rise, 1 + 0.8 * rise, 1 + 1.2 * rise),
        kl=Estimate(kl, 0.8 * kl, 1.2 * kl),
        top1=Estimate(same, same, same),
        decoding_kl=Estimate(kl, 0.5 * kl, 2 * kl),
        greedy=greedy,
    )


class Replay(QualityGuard):
    """A guard that looks up what a server would have answered."""

    def _read_reference(self, running: Any) -> None:
        empty = Reading(Prompts(((1,),), ((1,),)), EMPTY, EMPTY, 1.0)
        self._keep(PrecisionClass(), recorded(()), Effect(), 1.0, empty)

    def _read_class(self, chosen: PrecisionClass, running: Any) -> None:
        self._keep(chosen, recorded(chosen.flags), Effect(), 1.0)


def guard(folder: Path, level: str, allowed: bool = False, demo: bool = False) -> Replay:
    plan: Any = SimpleNamespace(
        settings=SimpleNamespace(max_quality_loss=level, quality_data=None, allow_unverified_precision=allowed),
        space=SPACE,
        variants={},
        model=SimpleNamespace(serve="m", revision="r", demo=demo),
        install=SimpleNamespace(dist_name="vllm", version="0.32.0"),
        device=SimpleNamespace(name="cpu"),
    )
    store = Store.open(f"sqlite:///{folder}/q.db")
    return Replay(plan, store, lambda _: None, lambda: None)


def run(config: LaunchConfig, replay: Replay, rng: random.Random) -> Outcome:
    report: Any = SimpleNamespace(config=config, engine=SimpleNamespace(report=None))
    if config.get("quantization") == SILENT and replay.noise is not None:
        replay._silent["quantization", SILENT] = "vLLM quantized 0 layers"
        return Outcome("infeasible", reason="does nothing")
    speed = SPEED.get(str(config.get("kv-cache-dtype")), 1.0) * (1.0 if config.get("max-num-seqs") is None else 0.8)
    value = 100 * speed * rng.lognormvariate(0, 0.05)
    return replay.judged(Outcome("measured", value=value, value_se=2.0), report)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield tmp_path_factory.mktemp("replay")


@pytest.mark.parametrize("level", ["tiny", "small"])
def test_no_rejected_value_is_a_finalist_in_twenty_seeds(folders: Path, level: str) -> None:
    tried: set[str] = set()
    for seed in range(20):
        folder = folders / f"{level}-{seed}"
        folder.mkdir()
        replay, rng = guard(folder, level), random.Random(seed)
        domain = Domain(SPACE)
        searcher = StudySearcher(
            open_study(f"s{seed}", None, "maximize"),
            domain,
            make_sampler("auto" if seed < 3 else "random", domain, "maximize", None),
            seed=seed,
            slo_names=replay.constraints,
            feasible=replay.guarding(lambda config: Feasibility(True, "")),
        )
        for _ in range(10):
            suggestion: Suggestion | None = searcher.ask()
            if suggestion is None:
                break
            searcher.tell(suggestion, run(suggestion.target, replay, rng))
            tried.add(str(suggestion.target.get("kv-cache-dtype")))
        finalists = searcher.finalists(3)
        for found in finalists:
            target = found.suggestion.target
            assert replay.refuses(target) is None
            assert target.get("kv-cache-dtype") in (None, "fp8") and target.get("quantization") is None
            assert level == "small" or target.get("kv-cache-dtype") is None
    assert set(KV) <= tried


def test_a_class_is_read_once_and_its_row_is_reused(tmp_path: Path) -> None:
    first = guard(tmp_path, "small")
    rng = random.Random(0)
    for seqs in (None, 8, 32):
        for dtype in (None, "fp8"):
            flags = {"max-num-seqs": seqs, "kv-cache-dtype": dtype}
            run(LaunchConfig.of({n: v for n, v in flags.items() if v is not None}), first, rng)
    rows = first._store.qualities(first._scope)
    assert [row.precision_key == "" for row in rows] == [True, False]
    again = guard(tmp_path, "small")
    assert again.noise is not None and [str(m.precision) for m in again.classes] == ["--kv-cache-dtype fp8"]
    assert again.refuses(LaunchConfig.of({"kv-cache-dtype": "fp8", "max-num-seqs": 8})) is None


def test_the_level_decides_over_what_is_stored(tmp_path: Path) -> None:
    run(LaunchConfig(), guard(tmp_path, "small"), random.Random(0))
    run(LaunchConfig.of({"kv-cache-dtype": "fp8"}), guard(tmp_path, "small"), random.Random(0))
    strict = guard(tmp_path, "none")
    assert "above 'none'" in str(strict.refuses(LaunchConfig.of({"kv-cache-dtype": "fp8"})))


def test_what_was_never_measured_is_refused(tmp_path: Path) -> None:
    fresh = guard(tmp_path, "any")
    config = LaunchConfig.of({"attention-backend": "FLASHINFER"})
    assert fresh.veto(config) is None and "was not measured" in str(fresh.refuses(config))
    assert fresh.refuses(LaunchConfig.of({"max-num-seqs": 8})) is None


def test_allowed_without_proof_it_says_speed_only(tmp_path: Path) -> None:
    config = LaunchConfig.of({"kv-cache-dtype": "int4_per_token_head"})
    closed = guard(tmp_path, "tiny", demo=True)
    assert "cannot be measured: the demonstration model has random weights" in str(closed.refuses(config))
    opened = guard(tmp_path, "tiny", allowed=True, demo=True)
    assert opened.refuses(config) is None
    assert quality_of(opened, config, SPACE) == "speed only: quality was not measured"


def test_what_was_measured_as_wrong_stays_refused_whatever_is_allowed(tmp_path: Path) -> None:
    opened, config = guard(tmp_path, "any", allowed=True), LaunchConfig.of({"kv-cache-dtype": "int4_per_token_head"})
    run(LaunchConfig(), opened, random.Random(0))
    outcome = run(config, opened, random.Random(0))
    assert outcome.violations["quality"] > 0 and "above 'any'" in str(opened.refuses(config))
