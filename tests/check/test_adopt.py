"""A launch as a configuration to measure: what is carried over, what is left out, and what is refused."""

import pytest

from autotune.check.adopt import adopt, split_name
from autotune.check.read import read_launches
from autotune.engine.releases import load_releases
from autotune.errors import UsageError

RELEASES = load_releases()


def adopted(command: str, version: str = "0.32.0"):
    version = RELEASES.nearest(version)
    _, launches = read_launches(command)
    return adopt(launches[0], RELEASES.table(version), RELEASES.vocabulary(version), RELEASES)


def test_keeps_what_matters_and_leaves_out_address_name_model_and_secrets() -> None:
    got = adopted(
        "HF_TOKEN=hf_secret NCCL_P2P_DISABLE=1 CUDA_VISIBLE_DEVICES=3 vllm serve org/Qwen3-14B --host 0.0.0.0 "
        "--port 80 --served-model-name x --api-key sk-secret "
        "--max-num-seqs 256 --gpu-memory-utilization 0.95 --enforce-eager"
    )
    assert dict(got.config.flags) == {"max-num-seqs": 256, "gpu-memory-utilization": 0.95, "enforce-eager": True}
    assert dict(got.config.env) == {"NCCL_P2P_DISABLE": "1"}
    assert got.model == "org/Qwen3-14B" and got.notes == ()


def test_keys_given_one_by_one_are_one_value() -> None:
    got = adopted("vllm serve m -cc.mode 3 -cc.pass_config.fuse_norm_quant true --no-enable-prefix-caching")
    assert got.config.get("compilation-config") == '{"mode": 3, "pass_config": {"fuse_norm_quant": true}}'
    assert got.config.get("enable-prefix-caching") is False


@pytest.mark.parametrize(
    ("words", "flags", "note"),
    [
        ("--use-v2-block-manager", {}, "--use-v2-block-manager was left out"),
        ("--num-scheduler-steps 8", {}, "--num-scheduler-steps was left out"),
        ("--cuda-graph-sizes 512", {"cudagraph-capture-sizes": 512}, "became --cudagraph-capture-sizes 512"),
        ("--enable-reasoning --reasoning-parser qwen3", {"reasoning-parser": "qwen3"}, "--enable-reasoning was left"),
        ("--disable-log-stats", {}, "counters"),
    ],
)
def test_flags_that_went_are_carried_over_where_their_meaning_is_kept(words: str, flags: dict, note: str) -> None:
    got = adopted(f"vllm serve m {words}")
    assert dict(got.config.flags) == flags and note in got.notes[0]


def test_a_variable_that_became_a_flag_is_carried_over() -> None:
    got = adopted("VLLM_ATTENTION_BACKEND=FLASHINFER VLLM_BOGUS=1 vllm serve m")
    assert dict(got.config.flags) == {"attention-backend": "FLASHINFER"} and not got.config.env
    assert "VLLM_BOGUS was left out" in got.notes[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--bogus 3", "no --bogus"),
        ("--speculative-model x", "--speculative-config"),
        ("--performance-mode throughput", "newer than vLLM 0.8"),
        ("--max-num-seqs $N", "Write the value"),
        ("--max-num-seqs many", "max-num-seqs"),
        ("--lora-dtype", "value"),
    ],
)
def test_what_would_mean_something_else_is_refused(words: str, said: str) -> None:
    version = "0.8.5" if "performance" in words else "0.32.0"
    with pytest.raises(UsageError, match="(?s)" + said.replace("--", "--")):
        adopted(f"vllm serve m {words}", version)


def test_a_name_stands_before_a_command_or_a_file() -> None:
    assert split_name("articles=vllm serve m --x", is_file=False) == ("articles", "vllm serve m --x")
    assert split_name("prod 1=docker run vllm/vllm-openai", is_file=False)[0] == "prod 1"
    assert split_name("VLLM_X=1 vllm serve m", is_file=False) == ("", "VLLM_X=1 vllm serve m")
    assert split_name("prod=unit.service", is_file=True) == ("prod", "unit.service")
