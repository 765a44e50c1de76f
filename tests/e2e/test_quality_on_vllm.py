"""The quality guard's measurements on real vLLM with a trained model: what is lossless, lossy, broken and a no-op."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from e2e.smollm2 import smollm2

from autotune.engine.boot import boot
from autotune.engine.effect import Effect, without_effect
from autotune.engine.install import VllmInstall
from autotune.engine.types import EngineSpec
from autotune.engine.warm import WarmServer
from autotune.quality.ask import Server, read, tokenize
from autotune.quality.compare import Comparison, compare
from autotune.quality.levels import KNOWS_NOTHING, LEVELS, judge
from autotune.quality.reading import Prompts, Reading
from autotune.quality.texts import load_texts
from autotune.space.config import LaunchConfig

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

FIXED = LaunchConfig.of(
    {
        "distributed-executor-backend": "uni",
        "kv-cache-memory-bytes": "512M",
        "enforce-eager": True,
        "max-model-len": 2048,
    },
    {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_HOST_IP": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"},
)


class Bench:
    """A warm server and the reference's reading of every second passage."""

    def __init__(self, spec: EngineSpec, warm: WarmServer) -> None:
        self.spec = spec
        self.warm = warm
        self.reference, self.noise, self.effect = self._reference()

    def _reference(self) -> tuple[Reading, Comparison, Effect]:
        with boot(self.spec, warm=self.warm) as engine:
            server = Server(engine.base_url, engine.model_name)
            whole = tokenize(server, load_texts())
            prompts = Prompts(whole.passages[::2], whole.openings[-3:])
            first = read(server, prompts)
            return first, compare(first, read(server, prompts)), Effect.of(engine.report)

    def precision(self, **flags: str) -> tuple[Comparison, dict[str, str]]:
        """What a precision gives, and which of its flags did nothing."""
        named = {name.replace("_", "-"): value for name, value in flags.items()}
        log = self.spec.log_path.with_name("-".join(named.values()) + ".log")
        spec = replace(self.spec, config=FIXED.merged(LaunchConfig.of(named)), log_path=log)
        with boot(spec, warm=self.warm) as engine:
            reading = read(Server(engine.base_url, engine.model_name), self.reference.prompts)
            nothing = without_effect(named, Effect.of(engine.report), self.effect)
            return compare(self.reference, reading), nothing


@pytest.fixture(scope="module")
def bench(vllm: VllmInstall, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    if vllm.built_for != "cpu":
        pytest.skip("the expected figures are those of vLLM's CPU backend")
    folder: Path = tmp_path_factory.mktemp("quality")
    spec = EngineSpec(
        install=vllm,
        model=str(smollm2(vllm.python)),
        config=FIXED,
        run_id=f"e2e-{folder.name}",
        log_path=folder / "reference.log",
        cache_root=folder / "cache",
    )
    with WarmServer(spec, folder / "warm.log") as warm:
        yield Bench(spec, warm)


def test_the_reference_against_itself_is_zero(bench: Bench) -> None:
    assert bench.noise.kl.high < 1e-6 and bench.noise.top1.value == 1
    assert judge(bench.noise, LEVELS["none"]).verdict == "within"
    assert 3 < bench.noise.reference_perplexity < KNOWS_NOTHING


def test_an_fp8_kv_cache_loses_a_little(bench: Bench) -> None:
    found, nothing = bench.precision(kv_cache_dtype="fp8")
    assert 0.003 < found.kl.value < 0.15 and nothing == {}
    assert judge(found, LEVELS["any"]).verdict == "within"
    assert judge(found, LEVELS["none"]).verdict == "over"


def test_a_kv_cache_that_answers_noise_is_over_every_limit(bench: Bench) -> None:
    found, _ = bench.precision(kv_cache_dtype="int8_per_token_head")
    assert found.kl.low > 1 and found.perplexity_ratio.low > 100
    assert judge(found, LEVELS["any"]).verdict == "over"


def test_a_quantization_that_does_nothing_is_named(bench: Bench) -> None:
    found, nothing = bench.precision(quantization="int8_per_channel_weight_only")
    assert list(nothing) == ["quantization"] and "0 layers" in nothing["quantization"]
    assert found.kl.value < 1e-6
