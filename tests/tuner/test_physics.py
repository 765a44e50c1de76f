"""The roofline's operating points for the Qwen3-14B shape on an H200, against what was measured there."""

from types import SimpleNamespace
from typing import Any

import pytest

from autotune.engine.model_shape import shape_of
from autotune.search.roofline import Roofline
from autotune.space.config import LaunchConfig
from autotune.space.defaults import Defaults
from autotune.tuner.physics import DevicePhysics
from autotune.workload.load import load_workload

QWEN3_14B: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "hidden_size": 5120,
    "intermediate_size": 17408,
    "num_hidden_layers": 40,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}


def physics(device: str = "h200") -> DevicePhysics:
    plan: Any = SimpleNamespace(
        variants={},
        workload=load_workload("batch-512-256"),
        concurrency=256,
        device=SimpleNamespace(class_hint=device),
        space=SimpleNamespace(vllm_defaults=Defaults(seqs=1024, tokens=8192), fixed=LaunchConfig()),
    )
    return DevicePhysics(plan, shape_of(QWEN3_14B))


@pytest.mark.parametrize(
    ("flags", "measured_tok_s"),
    [({}, 5860), ({"quantization": "fp8", "kv-cache-dtype": "fp8", "max-num-seqs": 512}, 8524)],
)
def test_the_unfitted_prior_is_within_a_fifth_of_the_measured_throughput(
    flags: dict[str, Any], measured_tok_s: float
) -> None:
    at = physics()(LaunchConfig.of(flags))
    assert at is not None
    assert Roofline().throughput(at) == pytest.approx(measured_tok_s, rel=0.2)


def test_the_batch_is_cut_by_max_num_seqs_and_fp8_halves_kv_bytes() -> None:
    at = physics()(LaunchConfig.of({"max-num-seqs": 64, "kv-cache-dtype": "fp8"}))
    assert at is not None and (at.batch, at.kv_bytes_per_token) == (64, 81_920)


def test_nothing_is_said_of_a_device_without_figures() -> None:
    assert not physics("cpu").known and physics("cpu")(LaunchConfig()) is None
