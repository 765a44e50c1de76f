"""Synthetic surfaces: made-up GPUs with known truth. SYNTHETIC: they show mechanisms, not gains to expect.

A surface is built from a richer roofline than the one the search uses as its prior: eager mode, front-end and
chunking costs, backends, memory with an activation term, plus random bumps (main effects and a few interactions)
that no model knows. Boots cost what one H200 showed: 42 s of imports, weights, graph capture, a compile that is
cold once per compile key. Noise is 1.8 % between boots and 1 % within for graph configurations, three times that
for eager ones, 4 % for latency tails; live points carry a bias of their own, largest for small token budgets.

Every surface is a dense table over the whole space, so that the true best is known.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from autotune.search.roofline import Operating
from autotune.search.types import Feasibility
from autotune.space.config import FlagValue, LaunchConfig
from autotune.space.parameters import Parameter, SearchSpace

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A machine, a model, a workload; sizes in GB, GB/s, TFLOP/s, billions, tokens, ms."""

    name: str
    bump_seed: int
    bandwidth: float
    tflops: float
    hbm: float
    fp8_compute: float
    params_b: float
    layers: int
    kv_heads: int
    head_dim: int
    isl: int
    osl: int
    concurrency: int
    max_len: int
    alpha: float = 0.7
    beta: float = 0.5
    t0_ms: float = 3.5
    eager_ms: float = 14.0
    front_us: float = 12.0
    bump: float = 0.006
    interaction: float = 0.012
    itl_p99_ms: float | None = None
    ttft_p95_ms: float | None = None
    default_tokens: int = 8192
    default_seqs: int = 1024
    axes: tuple[str, ...] = ()
    held_out: bool = False
    inert: bool = False


SEQS = (32, 64, 128, 256, 512, 1024)
TOKENS = (1024, 2048, 4096, 8192, 16384)


def space(names: tuple[str, ...] = ()) -> SearchSpace:
    """The axes of the synthetic surfaces: 194 400 assignments, or fewer where only ``names`` vary."""
    ordered = {"ordered": True}
    parameters = (
        Parameter("max-num-seqs", SEQS, "live", **ordered),
        Parameter("max-num-batched-tokens", TOKENS, "live", **ordered),
        Parameter("gpu-memory-utilization", (0.85, 0.9, None, 0.95, 0.97), **ordered),
        Parameter("block-size", (None, 32, 64), **ordered),
        Parameter("quantization", (None, "fp8"), precision=True),
        Parameter("kv-cache-dtype", (None, "fp8"), precision=True),
        Parameter("enforce-eager", (None, True)),
        Parameter("async-scheduling", (None, False)),
        Parameter("attention-backend", (None, "FLASHINFER", "TRITON_ATTN")),
        Parameter("api-server-count", (None, 2, 4), **ordered),
        Parameter("stream-interval", (None, 4, 16), **ordered),
    )
    return SearchSpace("synthetic", tuple(p for p in parameters if not names or p.name in names))


@dataclass(slots=True)
class Surface:
    """Truth per configuration, by flat index into the space; ``smooth`` is the value without its bumps."""

    scenario: Scenario
    space: SearchSpace
    defaults: Mapping[str, FlagValue]
    shape: tuple[int, ...]
    value: Array
    violations: dict[str, Array]
    margin: Array
    predicted_margin: Array
    batch: Array
    kv_tokens: Array
    smooth: Array
    best: float = 0.0
    known: dict[LaunchConfig, Operating] = field(default_factory=dict)
    rank: dict[str, dict[FlagValue | None, int]] = field(default_factory=dict)

    @property
    def fits(self) -> NDArray[np.bool_]:
        return self.margin > 0

    def index(self, config: LaunchConfig) -> int:
        """Flat index of a launch config."""
        codes = [self.rank[p.name][config.get(p.name)] for p in self.space.parameters]
        return int(np.ravel_multi_index(codes, self.shape))

    def config(self, index: int) -> LaunchConfig:
        """The launch config of a flat index."""
        codes = np.unravel_index(index, self.shape)
        values = {p.name: p.values[int(c)] for p, c in zip(self.space.parameters, codes, strict=True)}
        kept = {n: v for n, v in values.items() if v is not None and v != self.defaults.get(n)}
        return LaunchConfig.of(kept)

    def feasible(self, config: LaunchConfig) -> Feasibility:
        """The imperfect memory model that planners get."""
        margin = float(self.predicted_margin[self.index(config)])
        return Feasibility(margin > 0, "" if margin > 0 else "out of memory", margin)

    @property
    def slo_names(self) -> tuple[str, ...]:
        return tuple(self.violations)

    def share(self, config: LaunchConfig | None) -> float:
        """True value of a choice over the best feasible; 0 where it does not start or misses an SLO."""
        if config is None:
            return 0.0
        index = self.index(config)
        return float(self.value[index] / self.best) if self.fits[index] and self.meets_slo(index) else 0.0

    def shuffled(self, rng: np.random.Generator, planner: bool) -> Iterator[LaunchConfig]:
        """All configurations in random order; with ``planner`` only those that the memory model lets pass."""
        order = np.arange(self.value.size)
        return (self.config(int(i)) for i in rng.permutation(order[self.predicted_margin > 0] if planner else order))

    def rules_of_thumb(self) -> list[LaunchConfig]:
        """What guides advise: fp8 where the device computes in it, and twice the default limits."""
        most = {"max-num-seqs": SEQS[-1], "max-num-batched-tokens": TOKENS[-1]}
        wide = {n: min(2 * int(d), most[n]) for n, d in self.defaults.items() if int(d) < most[n]}
        fp8 = {"quantization": "fp8", "kv-cache-dtype": "fp8"} if self.scenario.fp8_compute > 1 else {}
        return [LaunchConfig.of(c) for c in (fp8, wide, {**fp8, **wide}) if c][:2]

    def meets_slo(self, index: int, room: float = 0.0) -> bool:
        """Whether the true tail latencies hold."""
        return all(float(v[index]) <= -room for v in self.violations.values())

    def physics(self, config: LaunchConfig) -> Operating:
        """What a planner knows: sizes from the model's config and the device's data sheet."""
        if config not in self.known:
            self.known[config] = self._physics(config)
        return self.known[config]

    def _physics(self, config: LaunchConfig) -> Operating:
        s, index = self.scenario, self.index(config)
        fp8, kv8 = config.get("quantization") == "fp8", config.get("kv-cache-dtype") == "fp8"
        seqs = config.get("max-num-seqs") or self.defaults["max-num-seqs"]
        room = float(self.kv_tokens[index]) / (s.isl + s.osl / 2)
        return Operating(
            batch=max(min(s.concurrency, float(seqs), room), 1.0),
            weight_bytes=s.params_b * 1e9 * (1.06 if fp8 else 2.0),
            kv_bytes_per_token=_kv_bytes(s) * (0.5 if kv8 else 1.0),
            flops_per_token=2e9 * s.params_b,
            input_tokens=s.isl,
            output_tokens=s.osl,
            bandwidth_bytes_s=s.bandwidth * 1e9,
            peak_flops=s.tflops * 1e12 * (s.fp8_compute if fp8 else 1.0),
        )


def build(s: Scenario) -> Surface:
    """The dense truth of a scenario."""
    axes = space(s.axes)
    defaults = {"max-num-seqs": s.default_seqs, "max-num-batched-tokens": s.default_tokens}
    shape = tuple(len(p.values) for p in axes.parameters)
    grid = np.indices(shape).reshape(len(shape), -1)
    code = {p.name: np.full(grid.shape[1], p.values.index(None) if None in p.values else 0) for p in space().parameters}
    code |= {p.name: grid[i] for i, p in enumerate(axes.parameters)}
    rng = np.random.default_rng(s.bump_seed)
    memory = _memory(s, code)
    margin, kv_tokens = memory
    rough = margin + rng.normal(0, 0.008) + rng.normal(0, 0.004, margin.shape)
    batch = np.clip(np.minimum(_pick(code, "max-num-seqs", SEQS), kv_tokens / (s.isl + s.osl / 2)), 1, s.concurrency)
    value, itl_ms, ttft_ms = _speed(s, code, batch)
    bumps = _bumps(rng, s, shape, grid)
    if s.inert:
        value, bumps = np.full_like(value, 5000.0), np.zeros_like(bumps)
    smooth, value = value, value * np.exp(bumps)
    violations = {}
    if s.itl_p99_ms:
        violations["itl_p99"] = itl_ms * np.exp(_bumps(rng, s, shape, grid)) / s.itl_p99_ms - 1
    if s.ttft_p95_ms:
        violations["ttft_p95"] = ttft_ms * np.exp(_bumps(rng, s, shape, grid)) / s.ttft_p95_ms - 1
    surface = Surface(s, axes, defaults, shape, value, violations, margin, rough, batch, kv_tokens, smooth)
    surface.rank = {p.name: {v: i for i, v in enumerate(p.values)} for p in axes.parameters}
    for name, default in defaults.items():
        surface.rank[name][None] = surface.rank[name][default]
    good = surface.fits.copy()
    for v in violations.values():
        good &= v <= 0
    surface.best = float(value[good].max())
    return surface


def _pick(code: Mapping[str, NDArray[np.int64]], name: str, values: tuple[float, ...]) -> Array:
    return np.array(values, dtype=np.float64)[code[name]]


def _kv_bytes(s: Scenario) -> float:
    return 2.0 * s.layers * s.kv_heads * s.head_dim * 2


def _memory(s: Scenario, code: Mapping[str, NDArray[np.int64]]) -> tuple[Array, Array]:
    """Spare memory after boot as a fraction of HBM, and KV tokens."""
    seqs, tokens = _pick(code, "max-num-seqs", SEQS), _pick(code, "max-num-batched-tokens", TOKENS)
    util = _pick(code, "gpu-memory-utilization", (0.85, 0.9, 0.92, 0.95, 0.97))
    weights = s.params_b * _pick(code, "quantization", (2.0, 1.06))
    kv = _kv_bytes(s) * _pick(code, "kv-cache-dtype", (1.0, 0.5))
    activation = tokens * s.params_b * 1.4e-5 + seqs * 152e3 * 8e-9
    graphs = _pick(code, "enforce-eager", (1.0, 0.0)) * (0.4 + 0.0015 * np.minimum(seqs, 512))
    room = util * s.hbm - weights - activation - graphs - 0.6
    spare = (room - s.max_len * kv / 1e9) / s.hbm
    outside = ((1 - util) * s.hbm - 0.45 - 0.35 * graphs - 0.06 * activation) / s.hbm
    return np.minimum(spare, outside), np.maximum(room, 0.01) * 1e9 / kv


def _speed(s: Scenario, code: Mapping[str, NDArray[np.int64]], batch: Array) -> tuple[Array, Array, Array]:
    """Output tokens per second, ITL p99 and TTFT p95 in ms."""
    seqs, tokens = _pick(code, "max-num-seqs", SEQS), _pick(code, "max-num-batched-tokens", TOKENS)
    flops = s.tflops * 1e12 * s.beta * _pick(code, "quantization", (1.0, s.fp8_compute))
    weights = s.params_b * 1e9 * _pick(code, "quantization", (2.0, 1.06))
    kv8 = code["kv-cache-dtype"] == 1
    kv = _kv_bytes(s) * np.where(kv8, 0.5, 1.0)
    backend = np.where(
        code["attention-backend"] == 1,
        np.where(kv8, 0.9, 1.05),
        np.where(code["attention-backend"] == 2, 1.35, 1.0),
    )
    read = (weights + batch * (s.isl + s.osl / 2) * kv * backend) / (s.alpha * s.bandwidth * 1e9)
    compute = 2e9 * s.params_b / flops
    eager = code["enforce-eager"] == 1
    servers = _pick(code, "api-server-count", (1, 2, 4))
    interval = _pick(code, "stream-interval", (1, 4, 16))
    front = batch * s.front_us * 1e-6 / servers**0.7 / interval**0.5
    step = s.t0_ms * 1e-3 + eager * s.eager_ms * 1e-3 + front
    step = step + np.where(code["async-scheduling"] == 1, 2e-3, 0.0) + (servers - 1) * 0.15e-3
    step = step + np.where(~eager & (batch > 512), 2.5e-3, 0.0) + np.where(seqs > 512, 0.2e-3, 0.0)
    step = step + np.array([0.0, 0.05e-3, 0.15e-3])[code["block-size"]]
    decode = np.maximum(read, batch * compute) + step
    prefill = s.isl * compute * (1 + 120 / tokens)
    tpot = decode + batch * prefill / s.osl
    chunk = np.minimum(tokens, batch * s.isl) * compute * (1 + 120 / tokens)
    itl_ms = 1e3 * (decode * interval**0.3 + chunk)
    queue = np.maximum(s.concurrency / batch - 1, 0) * tpot * s.osl
    ttft_ms = 1e3 * (queue + 0.35 * batch * prefill + chunk + decode)
    return batch / tpot, itl_ms, ttft_ms


def _bumps(rng: np.random.Generator, s: Scenario, shape: tuple[int, ...], grid: NDArray[np.int64]) -> Array:
    """Log effects that no model knows: one per value, and six interactions of random pairs of axes."""
    total = np.zeros(math.prod(shape))
    for axis, size in enumerate(shape):
        total += rng.normal(0, s.bump, size)[grid[axis]]
    for _ in range(6):
        a, b = rng.choice(len(shape), 2, replace=False)
        total += rng.normal(0, s.interaction, (shape[a], shape[b]))[grid[a], grid[b]]
    return total


def _qwen14(**changes: float | str | int | bool) -> dict[str, object]:
    return {
        "params_b": 14.8,
        "layers": 40,
        "kv_heads": 8,
        "head_dim": 128,
        "isl": 512,
        "osl": 256,
        "concurrency": 256,
        "max_len": 4096,
        **changes,
    }


H200 = {"bandwidth": 4800.0, "tflops": 989.0, "hbm": 141.0, "fp8_compute": 1.75}
H100 = {"bandwidth": 3350.0, "tflops": 989.0, "hbm": 80.0, "fp8_compute": 1.7}
A100 = {"bandwidth": 2039.0, "tflops": 312.0, "hbm": 40.0, "fp8_compute": 0.8}
L40S = {"bandwidth": 864.0, "tflops": 362.0, "hbm": 48.0, "fp8_compute": 1.6}
RTX = {"bandwidth": 1008.0, "tflops": 165.0, "hbm": 24.0, "fp8_compute": 1.6}
SMALL = {"default_tokens": 2048, "default_seqs": 256}
QWEN32 = {"params_b": 32.8, "layers": 64, "kv_heads": 8, "head_dim": 128}
LLAMA8 = {"params_b": 8.0, "layers": 32, "kv_heads": 8, "head_dim": 128}

FEW = ("max-num-seqs", "max-num-batched-tokens", "quantization", "kv-cache-dtype", "enforce-eager")

SCENARIOS = (
    Scenario("h200-few-flags", 5, **H200, **_qwen14(), axes=FEW),
    Scenario("h200-14b", 1, **H200, **_qwen14()),
    Scenario("h200-14b-itl", 2, **H200, **_qwen14(itl_p99_ms=120.0)),
    Scenario("a100-14b", 3, **A100, **_qwen14(isl=1024), **SMALL, alpha=0.75, beta=0.55),
    Scenario("rtx-8b-ttft", 4, **RTX, **_qwen14(**LLAMA8, concurrency=64, ttft_p95_ms=2500.0), **SMALL, eager_ms=22.0),
    Scenario("h100-14b-long", 11, **H100, **_qwen14(isl=4000, osl=400, concurrency=128), beta=0.42),
    Scenario("l40s-14b-itl", 12, **L40S, **_qwen14(concurrency=96, itl_p99_ms=260.0), **SMALL, alpha=0.8),
    Scenario("rtx-8b", 13, **RTX, **_qwen14(**LLAMA8, isl=300, osl=600), **SMALL, bump=0.01, interaction=0.02),
    Scenario(
        "a100-8b-bumpy",
        14,
        **A100,
        **_qwen14(**LLAMA8),
        **SMALL,
        bump=0.012,
        interaction=0.03,
        t0_ms=8.0,
    ),
    Scenario("h100-8b-itl", 31, **H100, **_qwen14(**LLAMA8, concurrency=192, itl_p99_ms=60.0), held_out=True),
    Scenario("a100-8b", 32, **A100, **_qwen14(**LLAMA8, isl=2000, osl=200, concurrency=128), **SMALL, held_out=True),
    Scenario(
        "h200-32b", 33, **H200, **_qwen14(**QWEN32, isl=1024, osl=512), held_out=True, bump=0.01, interaction=0.02
    ),
    Scenario(
        "l40s-8b-ttft", 34, **L40S, **_qwen14(**LLAMA8, concurrency=64, ttft_p95_ms=2000.0), **SMALL, held_out=True
    ),
)
# An A/A study: every configuration is equally fast, so "keep the default" is the only right answer.
NOTHING_MATTERS = Scenario("nothing-matters", 21, **H200, **_qwen14(), inert=True)
