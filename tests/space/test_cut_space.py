from textwrap import dedent

import pytest

from autotune.errors import UsageError
from autotune.space.choose import choose_space
from autotune.space.config import LaunchConfig
from autotune.space.cut import cut_space
from autotune.space.facts import GIB, DeviceFacts, VllmFacts
from autotune.space.load import load_shipped, load_space
from autotune.space.model import ModelFacts

H200 = DeviceFacts("cuda", "NVIDIA H200", 140 * GIB, (9, 0), usable_cores=32)
A100 = DeviceFacts("cuda", "NVIDIA A100-SXM4-80GB", 80 * GIB, (8, 0), usable_cores=32)
T4 = DeviceFacts("cuda", "Tesla T4", 15 * GIB, (7, 5), usable_cores=4)
CPU = DeviceFacts("cpu", "AMD EPYC", 24 * GIB, usable_cores=2)
QWEN = ModelFacts(dtype="bfloat16", attention="gqa", head_size=128, max_position_embeddings=40960)
AWQ = ModelFacts(dtype="float16", quantization="awq", head_size=128, max_position_embeddings=40960)
MLA = ModelFacts(dtype="bfloat16", attention="mla", head_size=576, max_position_embeddings=163840, moe=True)
ANY = VllmFacts("0.32.0", known=False)


@pytest.fixture
def space(tmp_path):
    """Cuts a space that is written down here."""

    def _space(text, device=H200, vllm=ANY, model=QWEN, **options):
        path = tmp_path / "mine.yaml"
        path.write_text(dedent(text))
        return cut_space(load_space(path), device, vllm, model, **options)

    return _space


def values(space, name):
    return next((p.values for p in space.parameters if p.name == name), None)


def reasons(space):
    return {(d.parameter, d.value): d.reason for d in space.dropped}


def shipped(device, model=QWEN, vllm=ANY, **options):
    file, because = choose_space(device)
    return cut_space(file, device, vllm, model, chosen_because=because, **options)


def test_fp8_is_kept_where_the_gpu_computes_it_and_marked_as_precision():
    space = shipped(H200)
    parameter = next(p for p in space.parameters if p.name == "quantization")
    assert parameter.values == (None, "fp8")
    assert parameter.precision
    assert space.chosen_because.startswith("h200: ")


def test_a_quantized_checkpoint_decides_the_quantization():
    space = shipped(H200, AWQ)
    assert values(space, "quantization") is None
    assert "needs a model with quantized false" in reasons(space)["quantization", "fp8"]


@pytest.mark.parametrize("method", ["awq", "gptq_marlin", "compressed-tensors", "auto_awq"])
def test_checkpoint_formats_are_never_tried_on_a_plain_checkpoint(space, method):
    found = space(f"parameters: {{quantization: [default, {method}], a: [1]}}")
    assert values(found, "quantization") is None
    assert reasons(found)["quantization", method] == (
        f"{method} needs a checkpoint in that format, this one is not quantized"
    )


def test_online_quantization_is_never_tried_on_a_quantized_checkpoint(space):
    found = space("parameters: {quantization: [default, fp8], a: [1]}", model=AWQ)
    assert reasons(found)["quantization", "fp8"] == "the checkpoint is quantized already (awq)"


def test_mla_models_keep_their_own_backends():
    space = shipped(H200, MLA)
    assert values(space, "attention-backend") is None
    assert values(space, "block-size") is None


def test_nothing_that_turing_cannot_do_is_tried_on_a_t4():
    names = {parameter.name for parameter in shipped(T4).parameters}
    assert not names & {"attention-backend", "kv-cache-dtype", "quantization"}


def test_ampere_takes_fp8_kv_only_where_flashinfer_does():
    odd = ModelFacts(dtype="bfloat16", attention="gqa", head_size=96, max_position_embeddings=4096)
    assert values(shipped(A100), "kv-cache-dtype") == (None, "fp8")
    assert values(shipped(A100, odd), "kv-cache-dtype") is None


def test_flags_and_choices_that_vllm_lacks_are_dropped_with_the_reason():
    flags = {"max-num-seqs": None, "kv-cache-dtype": ("auto", "fp8_e5m2"), "optimization-level": (0, 1, 2, 3)}
    space = shipped(H200, vllm=VllmFacts("0.32.0", flags))
    assert [p.name for p in space.parameters] == ["max-num-seqs", "optimization-level"]
    assert reasons(space)["stream-interval", None] == "vLLM 0.32.0 has no flag --stream-interval"
    assert reasons(space)["kv-cache-dtype", "fp8"] == (
        "vLLM 0.32.0 does not take --kv-cache-dtype fp8; it takes auto, fp8_e5m2"
    )


def test_fixed_flags_that_vllm_lacks_are_left_out():
    space = shipped(CPU, vllm=VllmFacts("0.32.0", {"max-num-seqs": None, "enforce-eager": None}))
    assert dict(space.fixed.flags) == {"enforce-eager": True}
    assert ("kv-cache-memory-bytes", 2**30) in reasons(space)


def test_a_persons_own_typing_mistake_is_an_error(space):
    flags = {"max-num-seqs": None, **{f"flag-{i}": None for i in range(30)}}
    with pytest.raises(UsageError, match=r"mine\.yaml:2: vLLM 0\.32\.0 has no flag --max-num-seq; did you mean"):
        space("parameters:\n  max-num-seq: [1]\n", vllm=VllmFacts("0.32.0", flags))


def test_a_persons_own_wrong_choice_is_an_error(space):
    with pytest.raises(UsageError, match=r"mine\.yaml:2: vLLM .* does not take --kv-cache-dtype fp7; it takes auto"):
        space("parameters:\n  kv-cache-dtype: [fp7]\n", vllm=VllmFacts("0.32.0", {"kv-cache-dtype": ("auto", "fp8")}))


def test_a_persons_flag_for_another_version_is_no_error(space):
    found = space(
        "parameters:\n  gone: {values: [1], when: {vllm: '<0.20'}}\n  max-num-seqs: [1]\n",
        vllm=VllmFacts("0.32.0", {"max-num-seqs": None}),
    )
    assert reasons(found) == {("gone", None): "needs vLLM <0.20, this is 0.32.0"}


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        ("compute_capability: '>=9.0'", True),
        ("compute_capability: '>=10.0'", False),
        ("compute_capability: '>=8.0,<9'", False),
        ("vllm: '>=0.24'", True),
        ("vllm: '<0.24'", False),
        ("device_memory_gib: '>=100,<=141'", True),
        ("device_memory_gib: '<100'", False),
        ("cores: '>=32'", True),
        ("cores: '>32'", False),
        ("model: {dtype: [float16, bfloat16]}", True),
        ("model: {dtype: float16}", False),
        ("model: {quantized: false, moe: false, hybrid: false, sliding_window: false}", True),
        ("model: {moe: true}", False),
        ("model: {quantization: awq}", False),
        ("model: {attention: gqa}", True),
        ("model: {attention: mla}", False),
        ("model: {head_size: '<=128'}", True),
        ("model: {head_size: [64, 256]}", False),
        ("vllm: '>=0.24', compute_capability: '>=10'", False),
    ],
)
def test_conditions(space, condition, kept):
    found = space(f"parameters: {{a: {{values: [1], when: {{{condition}}}}}, b: [1]}}")
    assert (values(found, "a") is not None) == kept
    assert (("a", None) in reasons(found)) == (not kept)


@pytest.mark.parametrize(("version", "kept"), [("0.33.0.dev1+gabc", True), ("0.32.0+cpu", True), ("weird", False)])
def test_versions_of_nightly_and_cpu_builds_count(space, version, kept):
    found = space(
        "parameters: {a: {values: [1], when: {vllm: '>=0.32'}}, b: [1]}", vllm=VllmFacts(version, known=False)
    )
    assert (values(found, "a") is not None) == kept


def test_a_device_without_compute_capability_meets_no_demand_for_one(space):
    found = space("parameters: {a: {values: [1], when: {compute_capability: '>=8'}}, b: [1]}", CPU)
    assert reasons(found)["a", None] == "needs compute capability >=8, AMD EPYC has none"


def test_a_value_goes_alone_and_the_rest_stays(space):
    found = space("parameters: {a: [default, {value: x, when: {vllm: '<0.1'}}, y]}")
    assert values(found, "a") == (None, "y")
    assert reasons(found)["a", "x"] == "needs vLLM <0.1, this is 0.32.0"


def test_conditions_on_searched_parameters_stay_conditions(space):
    found = space("parameters: {a: [default, 1], b: {values: [2], when: {parameter: {a: [default, 3]}}}}")
    assert dict(found.parameters[1].requires) == {"a": (None, 3)}
    assert found.config({"a": 1, "b": 2}) == LaunchConfig.of({"a": 1})


def test_conditions_on_what_is_not_searched_are_settled(space):
    text = """
        parameters:
          a: {values: [1], when: {vllm: "<0.1"}}
          met: {values: [2], when: {parameter: {a: [default]}}}
          unmet: {values: [3], when: {parameter: {a: [1]}}}
          after: {values: [4], when: {parameter: {unmet: [3]}}}
          value: [default, 5, {value: 6, when: {parameter: {a: [1]}}}]
    """
    found = space(text)
    assert [p.name for p in found.parameters] == ["met", "value"]
    assert found.parameters[0].requires == {}
    assert values(found, "value") == (None, 5)
    assert reasons(found)["after", None] == "needs another value of unmet, which is not searched"
    assert found.needs == ()


def test_a_fixed_value_settles_a_condition(space):
    text = "parameters: {a: [1, 2], b: {values: [3], when: {parameter: {a: [2]}}}}"
    assert values(space(text, overrides=LaunchConfig.of({"a": 2})), "b") == (3,)
    with pytest.raises(UsageError, match="leaves nothing to search"):
        space(text, overrides=LaunchConfig.of({"a": 1}))


def test_conditions_of_single_values_become_needs(space):
    found = space("parameters: {a: [default, {value: x, when: {parameter: {b: [default]}}}], b: [default, 1]}")
    assert found.broken_rule({"a": "x", "b": 1}) == "a x needs b in [default]"
    assert found.broken_rule({"a": "x"}) is None


def test_what_the_person_fixed_is_not_searched_and_goes_to_every_engine():
    space = shipped(H200, overrides=LaunchConfig.of({"kv-cache-dtype": "fp8"}, {"A": "1"}))
    assert values(space, "kv-cache-dtype") is None
    assert space.fixed.get("kv-cache-dtype") == "fp8"
    assert dict(space.fixed.env) == {"A": "1"}
    assert reasons(space)["kv-cache-dtype", None] == "fixed at fp8 for every engine"


@pytest.mark.parametrize(
    ("given", "said"), [({"a-flag": 1}, "has no flag --a-flag"), ({"dtype": "fp9"}, "does not take --dtype fp9")]
)
def test_a_wrong_override_is_refused(given, said):
    vllm = VllmFacts("0.32.0", {"max-num-seqs": None, "dtype": ("auto",)})
    with pytest.raises(UsageError, match=said):
        shipped(H200, vllm=vllm, overrides=LaunchConfig.of(given))


def test_the_length_is_fixed_to_the_workloads_need():
    assert shipped(H200, workload_max_len=768).fixed.get("max-model-len") == 768
    assert shipped(H200).fixed.get("max-model-len") is None


def test_a_length_that_the_person_fixed_stays():
    space = shipped(H200, workload_max_len=768, overrides=LaunchConfig.of({"max-model-len": 4096}))
    assert space.fixed.get("max-model-len") == 4096


def test_a_length_that_cannot_work_is_refused():
    with pytest.raises(UsageError, match=r"the workload needs 50000 tokens .* the model takes 40960"):
        shipped(H200, workload_max_len=50000)
    with pytest.raises(UsageError, match="--max-model-len 512 is shorter than the workload's 768 tokens"):
        shipped(H200, workload_max_len=768, overrides=LaunchConfig.of({"max-model-len": 512}))


def test_seeds_that_use_what_is_gone_are_dropped_with_the_reason():
    space = shipped(H200, AWQ)
    assert [dict(seed.flags) for seed in space.seeds] == [
        {"max-num-batched-tokens": 2048, "max-num-seqs": 512},
        {"gpu-memory-utilization": 0.95},
    ]
    assert reasons(space)["seed fp8 throughout", None] == "quantization is not searched here"


def test_seeds_that_equal_the_default_or_each_other_are_left_out(space):
    text = """
        parameters: {max-num-seqs: [512, default], b: [default, 1]}
        seeds:
          - {name: default, flags: {max-num-seqs: 1024, b: default}}
          - {name: one, flags: {b: 1}}
          - {name: two, flags: {b: 1, max-num-seqs: 1024}}
          - {name: three, flags: {max-num-seqs: 512}}
    """
    assert space(text).seeds == (LaunchConfig.of({"b": 1}), LaunchConfig.of({"max-num-seqs": 512}))


def test_seeds_that_break_a_rule_are_dropped(space):
    text = """
        parameters: {max-num-seqs: [512], max-num-batched-tokens: [64]}
        rules: [max-num-batched-tokens >= max-num-seqs]
        seeds: [{name: x, flags: {max-num-seqs: 512, max-num-batched-tokens: 64}}]
    """
    found = space(text)
    assert found.seeds == ()
    assert reasons(found)["seed x", None] == "max-num-batched-tokens >= max-num-seqs"


def test_what_the_file_omits_keeps_its_reason():
    assert reasons(shipped(H200))["enforce-eager", None].startswith("32 % less throughput")


def test_nothing_left_to_search_is_an_error(space):
    with pytest.raises(UsageError, match=r"'mine' leaves nothing to search here \(a: needs vLLM <0\.1"):
        space("parameters: {a: {values: [1], when: {vllm: '<0.1'}}}")


def test_numbers_are_ordered_unless_the_file_says_otherwise(space):
    found = space("parameters: {a: [1, default, 4], b: [x, y], c: {values: [1, 2], ordered: false}, d: [true, false]}")
    assert {p.name: p.ordered for p in found.parameters} == {"a": True, "b": False, "c": False, "d": False}


def test_a_default_and_its_explicit_equal_are_known_duplicates_on_each_device():
    explicit = LaunchConfig.of({"max-num-seqs": 1024, "max-num-batched-tokens": 8192})
    assert shipped(H200).effective(explicit) == shipped(H200).effective(LaunchConfig())
    assert shipped(A100).effective(explicit) != shipped(A100).effective(LaunchConfig())


def test_on_a_cpu_unset_means_the_fixed_value():
    space = shipped(CPU)
    assert space.defaults["enforce-eager"] is True
    assert space.effective(LaunchConfig.of({"enforce-eager": True})) == space.effective(LaunchConfig())
    assert space.effective(LaunchConfig.of({"enforce-eager": False})) != space.effective(LaunchConfig())


def test_a_shipped_space_works_on_a_device_it_was_not_written_for():
    space = cut_space(load_shipped("h200"), CPU, ANY, QWEN)
    assert values(space, "attention-backend") is None
    assert values(space, "max-num-seqs") == (128, 256, 512, None)
