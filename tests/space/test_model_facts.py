import json

import pytest

from autotune.errors import UsageError
from autotune.space.model import ModelFacts

QWEN3_14B = {
    "architectures": ["Qwen3ForCausalLM"],
    "torch_dtype": "bfloat16",
    "hidden_size": 5120,
    "num_hidden_layers": 40,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "use_sliding_window": False,
    "sliding_window": None,
}


def facts(**changes):
    return ModelFacts.from_config_json({**QWEN3_14B, **changes})


def test_a_dense_model_with_grouped_queries():
    assert facts() == ModelFacts(
        architecture="Qwen3ForCausalLM",
        dtype="bfloat16",
        attention="gqa",
        head_size=128,
        layers=40,
        heads=40,
        kv_heads=8,
        hidden_size=5120,
        vocab_size=151936,
        max_position_embeddings=40960,
    )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"num_key_value_heads": 40}, {"attention": "mha", "kv_heads": 40}),
        ({"kv_lora_rank": 512, "qk_rope_head_dim": 64}, {"attention": "mla", "head_size": 576}),
        ({"num_experts": 128}, {"moe": True}),
        ({"num_local_experts": 8}, {"moe": True}),
        ({"num_experts": 1}, {"moe": False}),
        ({"sliding_window": 4096, "use_sliding_window": True}, {"sliding_window": 4096}),
        ({"sliding_window": 4096, "use_sliding_window": False}, {"sliding_window": None}),
        ({"quantization_config": {"quant_method": "awq"}}, {"quantization": "awq", "quantized": True}),
        ({"quantization_config": {}}, {"quantization": None, "quantized": False}),
        ({"quantization_config": {"bits": 4}}, {"quantization": "unknown"}),
        ({"head_dim": None}, {"head_size": 128}),
        ({"torch_dtype": None, "dtype": "float16"}, {"dtype": "float16"}),
        ({"torch_dtype": None}, {"dtype": None}),
        ({"linear_num_key_heads": 16}, {"hybrid": True}),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, {"max_position_embeddings": 163840}),
        (
            {"rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 32768}},
            {"max_position_embeddings": 131072},
        ),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, {"max_position_embeddings": 40960}),
    ],
)
def test_what_a_config_says(changes, expected):
    found = facts(**changes)
    assert {name: getattr(found, name) for name in expected} == expected


def test_the_text_part_of_a_multimodal_model_counts():
    found = ModelFacts.from_config_json({"architectures": ["X"], "dtype": "bfloat16", "text_config": QWEN3_14B})
    assert (found.heads, found.dtype, found.architecture) == (40, "bfloat16", "X")


def test_a_file_and_its_folder_give_the_same(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(QWEN3_14B))
    assert ModelFacts.from_config_json(tmp_path) == ModelFacts.from_config_json(tmp_path / "config.json") == facts()


@pytest.mark.parametrize(("text", "said"), [("{", "is not JSON"), ("[1]", "no JSON object"), (None, "cannot read")])
def test_a_broken_file_is_named(tmp_path, text, said):
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(UsageError, match=said) as caught:
        ModelFacts.from_config_json(tmp_path)
    assert "config.json" in str(caught.value)
