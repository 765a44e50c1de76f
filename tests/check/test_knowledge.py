"""What a check knows about models, context and GPUs, and how it reads arguments."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from autotune.check.arguments import Arguments, read_arguments
from autotune.check.check import check_target
from autotune.check.context import allowed_context
from autotune.check.gpus import find_device, named_devices
from autotune.check.models import find_model
from autotune.check.rules.advice import rows
from autotune.check.rules.flags import renames
from autotune.check.shell import launches_in_shell
from autotune.engine.releases import load_releases
from autotune.errors import UsageError

RELEASES = load_releases()
QWEN = {"max_position_embeddings": 40960}
YARN = '{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}'


def arguments(line: str, version: str = "0.32.0") -> Arguments:
    (launch,) = launches_in_shell(line)
    return read_arguments(launch, RELEASES.table(version))


def test_settings_by_name_whatever_their_spelling() -> None:
    found = arguments(
        "vllm serve m -tp 2 --max_num_seqs=8k --no-enable-prefix-caching -O3 --port 1 --port 2 -cc.mode 3"
    )
    assert found.model and found.model.text == "m"
    assert [found.value(n) for n in ("tensor-parallel-size", "max-num-seqs", "port")] == [2, 8000, 2]
    assert found.value("enable-prefix-caching") is False
    assert found.get("optimization-level") and found.nested("compilation-config") == {"mode": 3}
    assert not found.strays


def test_lists_end_at_the_next_option_and_numbers_may_be_negative() -> None:
    found = arguments("vllm serve m --served-model-name a b --max-model-len -1 --enforce-eager")
    assert found.get("served-model-name").text == "a b"
    assert found.value("max-model-len") == -1


def test_a_removed_flag_takes_its_value_with_it() -> None:
    (launch,) = launches_in_shell("vllm serve --swap-space 4 org/m --disable-log-requests --port 1")
    found = read_arguments(launch, RELEASES.table("0.32.0"), RELEASES.ever({"--swap-space", "--disable-log-requests"}))
    assert found.model and found.model.text == "org/m"
    assert [s.name for s in found.settings if s.status == "unknown"] == ["swap-space", "disable-log-requests"]
    assert not found.strays


@pytest.mark.parametrize(
    ("version", "flags", "tokens"),
    [
        ("0.32.0", "", 40960),
        ("0.24.0", f"--hf-overrides '{{\"rope_parameters\": {YARN}}}'", 131072),
        ("0.30.0", f"--hf-overrides '{{\"rope_parameters\": {YARN}}}'", 40960),
        ("0.30.0", "--hf-overrides '{\"max_position_embeddings\": 131072}'", 131072),
        ("0.10.2", f"--rope-scaling '{YARN}'", 131072),
        ("0.32.0", '--hf-overrides \'{"rope_parameters": {"rope_type": "linear", "factor": 2}}\'', 81920),
        ("0.32.0", '--hf-overrides \'{"rope_parameters": {"rope_type": "llama3", "factor": 8}}\'', 40960),
    ],
)
def test_the_longest_context(version: str, flags: str, tokens: int) -> None:
    context = allowed_context(QWEN, arguments(f"vllm serve m {flags}", version), Version(version))
    assert context and context.tokens == tokens


def test_models_without_the_network(tmp_path: Path) -> None:
    nowhere = {"HF_HOME": str(tmp_path)}
    plain = find_model("Qwen/Qwen3-14B", environ=nowhere)
    assert (plain.quantization, plain.facts.max_position_embeddings, plain.facts.heads) == (None, 40960, 40)
    assert plain.shape and 27 < plain.shape.weights_bytes / 2**30 < 28
    quantized = find_model("Qwen/Qwen3-14B-AWQ", environ=nowhere)
    assert quantized.quantization == "awq"
    assert quantized.shape and quantized.shape.weights_bytes < plain.shape.weights_bytes / 2
    family = find_model("Qwen/Qwen3-235B-A22B-GPTQ-Int4", environ=nowhere)
    assert (family.facts.architecture, family.quantization, family.shape) == ("Qwen3MoeForCausalLM", "gptq", None)
    stranger = find_model("org/thing", environ=nowhere)
    assert (stranger.facts.architecture, stranger.quantization_known) == ("", False)


def test_the_hubs_cache_comes_before_the_list(tmp_path: Path) -> None:
    folder = tmp_path / "hub/models--Qwen--Qwen3-14B/snapshots/abc"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 77}))
    assert find_model("Qwen/Qwen3-14B", environ={"HF_HOME": str(tmp_path)}).facts.max_position_embeddings == 77


@pytest.mark.parametrize(("name", "known"), [("rtx-4090", "rtx-4090"), ("RTX 4090", "rtx-4090"), ("a100", "a100-80g")])
def test_gpus_by_name(name: str, known: str) -> None:
    assert find_device(name) == named_devices()[known]


@pytest.mark.parametrize("name", ["rtx-9090", "h2000x"])
def test_a_gpu_that_nobody_knows(name: str) -> None:
    with pytest.raises(UsageError, match="rtx-4090"):
        find_device(name)


def test_the_cpu_can_be_named() -> None:
    device = find_device("cpu")
    assert device and device.kind == "cpu"


def test_what_is_advised_instead_exists() -> None:
    """Every flag that a replacement needs exists in some version, and every advice speaks of a real flag."""
    ways = [*(entry["instead"] for entry in renames()["flags"].values()), *renames()["env"].values()]
    for needed, _ in (way for choices in ways for way in choices):
        assert needed is None or RELEASES.flag_lifetime(f"--{needed}"), needed
    for name in renames()["deprecated"]:
        assert RELEASES.flag_lifetime(f"--{name}"), name
    for row in rows():
        known = (
            RELEASES.flag_lifetime(f"--{row['flag']}") if "flag" in row else RELEASES.name_lifetime("env", row["env"])
        )
        assert known, row


@given(st.text(max_size=200), st.sampled_from(["0.6.3.post1", "0.10.2", "0.33.0"]))
def test_no_command_line_breaks_the_check(tail: str, version: str) -> None:
    line = f"vllm serve Qwen/Qwen3-14B {tail}"
    check_target(line, vllm=version, device=named_devices()["l4"], environ={"HF_HOME": "/none"})


_WORDS = st.lists(
    st.one_of(
        st.sampled_from([f"--{flag.name}" for flag in RELEASES.table("0.33.0").flags]),
        st.sampled_from(["true", "8k", "-1", "auto", "'{\"a\": 1}'", "fp8", "0.5", "x", "-O3", "--no-such", "--"]),
    ),
    max_size=12,
)


@given(_WORDS)
def test_no_combination_of_flags_breaks_the_check(words: list[str]) -> None:
    line = " ".join(["vllm serve Qwen/Qwen3-14B-AWQ", *words])
    check_target(line, vllm="0.33.0", device=named_devices()["h100"], environ={"HF_HOME": "/none"})
