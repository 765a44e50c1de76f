"""Every mistake in a space file is told with file, line, value and what was expected."""

from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import UsageError
from autotune.space.load import load_shipped, load_space


@pytest.fixture
def write(tmp_path):
    def _write(text, name="mine.yaml"):
        path = tmp_path / name
        path.write_text(dedent(text).lstrip("\n"))
        return path

    return _write


def complaint(path):
    with pytest.raises(UsageError) as caught:
        load_space(path)
    text = str(caught.value)
    assert text.count("\n") <= 1
    assert caught.value.exit_code == 2
    return text.replace(str(path.parent) + "/", "")


BAD = {
    "wrong key at the top": (
        "parameters: {a: [1]}\nparametrs: {}\n",
        "mine.yaml:2: unknown key 'parametrs' in the file; did you mean 'parameters'?",
    ),
    "wrong key in a parameter": (
        "parameters:\n  max-num-seqs:\n    value: [1, 2]\n",
        "mine.yaml:3: unknown key 'value' in max-num-seqs; did you mean 'values'?",
    ),
    "wrong key in a condition": (
        "parameters:\n  a:\n    values: [1]\n    when: {compute_capabilty: '>=8'}\n",
        "mine.yaml:4: unknown key 'compute_capabilty' in a.when; did you mean 'compute_capability'?",
    ),
    "wrong key in a model condition": (
        "parameters:\n  a:\n    values:\n      - 1\n      - {value: 2, when: {model: {xyz: 3}}}\n",
        "mine.yaml:5: unknown key 'xyz' in a.values.2.when.model; expected one of: dtype,",
    ),
    "wrong type of value": (
        "parameters:\n  a:\n    values:\n      - 1\n      - null\n      - 2024-01-01\n",
        "mine.yaml:6: a.values.3: expected a number, a text, true, false or default, found datetime.date",
    ),
    "a word where a list belongs": (
        "parameters:\n  max-num-seqs:\n    values: 64\n",
        "mine.yaml:3: max-num-seqs.values: expected a list, found 64",
    ),
    "a word where a parameter belongs": (
        "parameters:\n  max-num-seqs: many\n",
        "mine.yaml:2: max-num-seqs: expected a list of values or a mapping, found 'many'",
    ),
    "wrong scope": (
        "parameters:\n  a:\n    values: [1]\n    scope: warm\n",
        "mine.yaml:4: a.scope: expected 'boot' or 'live', found 'warm'",
    ),
    "a word where true or false belongs": (
        "parameters:\n  a: {values: [1], ordered: maybe}\n",
        "mine.yaml:2: a.ordered: expected true or false, found 'maybe'",
    ),
    "empty list": (
        "parameters:\n  a: []\n",
        "mine.yaml:2: a: expected at least one value (an empty list leaves nothing to try)",
    ),
    "empty range": (
        "parameters:\n  a: {low: 8, high: 4, step: 1}\n",
        "mine.yaml:2: a: empty range: low 8 is above high 4",
    ),
    "range without step": (
        "parameters:\n  a: {low: 1, high: 4}\n",
        "mine.yaml:2: a: expected a step above 0, or log2: true",
    ),
    "half a range": ("parameters:\n  a: {low: 1}\n", "mine.yaml:2: a: expected values, or low and high"),
    "a range of text": (
        "parameters:\n  a: {low: one, high: 4, step: 1}\n",
        "mine.yaml:2: a.low: expected a number, found 'one'",
    ),
    "a range without end": (
        "parameters:\n  a: {low: 1, high: .inf, step: 1}\n",
        "mine.yaml:2: a.high: expected a number, found inf",
    ),
    "deep nesting": ("parameters: " + "[" * 50_000, "mine.yaml: nested too deeply to be a space file"),
    "aliases that explode": (
        "parameters:\n  a0: &a0 [1, 2]\n"
        + "".join(f"  a{i}: &a{i} [" + ", ".join([f"*a{i - 1}"] * 9) + "]\n" for i in range(1, 9)),
        "mine.yaml: more than 20000 values; a space file is far smaller",
    ),
    "an alias that contains itself": (
        "parameters:\n  a: &a [*a]\n",
        "mine.yaml:2: an alias that contains itself",
    ),
    "doubling from zero": (
        "parameters:\n  a: {low: 0, high: 4, log2: true}\n",
        "mine.yaml:2: a: log2 needs a low above 0 and no step",
    ),
    "too many values": (
        "parameters:\n  a: {low: 0, high: 1, step: 0.0001}\n",
        "mine.yaml:2: a: more than 1000 values; take a larger step or log2: true",
    ),
    "both forms": (
        "parameters:\n  a: {values: [1], low: 1, high: 2}\n",
        "mine.yaml:2: a: expected either values or low and high, not both",
    ),
    "a value twice": ("parameters:\n  a: [1, 2, 1]\n", "mine.yaml:2: a: 1 stands twice in the list"),
    "duplicate key": (
        "parameters:\n  a: [1]\n  b: [1]\n  a: [2]\n",
        "mine.yaml:4: duplicate key 'a' (first on line 2)",
    ),
    "bad compute capability": (
        "parameters:\n  a:\n    values: [1]\n    when:\n      compute_capability: at least 8\n",
        'mine.yaml:5: a.when.compute_capability: expected a comparison such as ">=0.24" or ">=8.0,<9"',
    ),
    "a version without quotes": (
        "parameters:\n  a:\n    values: [1]\n    when:\n      vllm: 0.24\n",
        "mine.yaml:5: a.when.vllm: expected a text (in quotation marks, if it looks like a number), found 0.24",
    ),
    "bad memory": (
        "parameters:\n  a:\n    values: [1]\n    when: {device_memory_gib: 24G}\n",
        'mine.yaml:4: a.when.device_memory_gib: expected a comparison with a number, such as ">=24"',
    ),
    "unknown attention": (
        "parameters:\n  a:\n    values: [1]\n    when: {model: {attention: flash}}\n",
        "mine.yaml:4: a.when.model.attention: expected 'mha', 'gqa', 'mla' or 'none', found 'flash'",
    ),
    "condition on an unknown parameter": (
        "parameters:\n  max-num-seqs: [1]\n  b:\n    values: [1]\n    when:\n      parameter: {max-num-seq: [1]}\n",
        "mine.yaml:6: 'max-num-seq' is not a parameter of this space; did you mean 'max-num-seqs'?",
    ),
    "value condition on an unknown parameter": (
        "parameters:\n  a: [1]\n  b:\n    values:\n      - {value: 1, when: {parameter: {c: [1]}}}\n",
        "mine.yaml:5: 'c' is not a parameter of this space",
    ),
    "rule that is none": (
        "parameters: {a: [1]}\nrules:\n  - a => 2\n",
        "mine.yaml:3: rules.1: expected 'FLAG >= FLAG' or 'FLAG <= NUMBER' (one of >= <= > < == !=), found 'a => 2'",
    ),
    "rule on an unknown parameter": (
        "parameters: {alpha: [1]}\nrules:\n  - alpha >= alfa\n",
        "mine.yaml:3: 'alfa' is not a parameter of this space; did you mean 'alpha'?",
    ),
    "seed with an unknown parameter": (
        "parameters: {a: [1]}\nseeds:\n  - name: x\n    flags: {b: 1}\n",
        "mine.yaml:4: 'b' is not a parameter of this space",
    ),
    "seed without a name": (
        "parameters: {a: [1]}\nseeds:\n  - flags: {a: 1}\n",
        "mine.yaml:3: seeds.1 has no key 'name'",
    ),
    "flag with dashes": (
        "parameters:\n  --max_num_seqs: [1]\n",
        "mine.yaml:2: --max_num_seqs: expected a flag's full name without dashes in front, such as 'max-num-seqs'",
    ),
    "max-model-len": (
        "parameters:\n  max-model-len: [1024]\n",
        "mine.yaml:2: max-model-len cannot be searched: it is fixed from the workload's need",
    ),
    "no parameters": ("name: x\n", "mine.yaml:1: the file has no parameters to search"),
    "empty parameters": ("parameters: {}\n", "mine.yaml:1: the file has no parameters to search"),
    "empty file": ("", "mine.yaml:1: expected a mapping with the key 'parameters', found nothing"),
    "a list": ("- 1\n", "mine.yaml:1: expected a mapping with the key 'parameters', found a seq"),
    "not YAML": ("parameters:\n  a: [1\nb: 2\n", "mine.yaml:3: not YAML: "),
    "unknown parent": (
        "extends: h20\nparameters: {a: [1]}\n",
        "mine.yaml:1: no search space 'h20' to extend; did you mean 'h200'?",
    ),
    "newer schema": ("schema: 2\nparameters: {a: [1]}\n", "mine.yaml:1: schema: expected 1, found 2"),
    "environment that is no text": (
        "parameters: {a: [1]}\nfixed:\n  env: {N: 1}\n",
        "mine.yaml:3: fixed.env.N: expected a text (in quotation marks, if it looks like a number), found 1",
    ),
    "omitted and searched": (
        "parameters: {a: [1]}\nomit: {a: why}\n",
        "mine.yaml:2: 'a' is among the parameters as well",
    ),
    "extends that is no name": ("extends: [h200]\nparameters: {a: [1]}\n", "mine.yaml:1: extends: expected a text"),
    "match that is half": (
        "parameters: {a: [1]}\nmatch: {kind: cuda, memory_gib: [70]}\n",
        "mine.yaml:2: match.memory_gib: expected two numbers, such as [70, 90]",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_mistake_is_told_with_its_line(write, case):
    text, expected = BAD[case]
    path = write("")
    path.write_text(text)
    assert complaint(path).startswith(expected)


def test_unreadable_files_are_named(tmp_path):
    assert "cannot read the space file" in complaint(tmp_path / "missing.yaml")
    assert "cannot read the space file" in complaint(tmp_path)
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00\x01")
    assert complaint(tmp_path / "binary.yaml") == "binary.yaml is not text in UTF-8; expected a YAML file"


@given(st.binary(max_size=200))
def test_no_content_ends_in_anything_but_a_usage_error(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("fuzz") / "x.yaml"
    path.write_bytes(content)
    with pytest.raises(UsageError):
        load_space(path)


YAML_WORDS = ["a", "1", "[", "]", "{", "}", ":", " ", "\n", "  ", "- ", "values", "parameters:", "default", "&x ", "*x"]


@given(st.lists(st.sampled_from(YAML_WORDS), max_size=30).map("".join))
def test_no_yaml_ends_in_anything_but_a_usage_error(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("fuzz") / "x.yaml"
    path.write_text("parameters:\n  a:\n    values: [1]\n" + content)
    try:
        load_space(path)
    except UsageError as error:
        assert "x.yaml" in str(error)


def values(file, name):
    return [entry.value for entry in file.parameters[name].entries()]


def test_a_short_file_needs_only_parameters(write):
    file = load_space(write("parameters:\n  max-num-seqs: [64, default, 128]\n"))
    assert file.name == "mine"
    assert values(file, "max-num-seqs") == [64, None, 128]


def test_human_integers_count_as_vllm_counts_them(write):
    file = load_space(write("parameters:\n  kv-cache-memory-bytes: [256M, 256m, 1.5g]\n"))
    assert values(file, "kv-cache-memory-bytes") == [256 * 2**20, 256 * 10**6, 1_500_000_000]


def test_mappings_become_json_text(write):
    file = load_space(write("parameters:\n  compilation-config: [default, {value: {cudagraph_mode: NONE, mode: 3}}]\n"))
    assert values(file, "compilation-config") == [None, '{"cudagraph_mode":"NONE","mode":3}']


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("{low: 1, high: 4, step: 1}", [1, 2, 3, 4]),
        ("{low: 0.8, high: 0.95, step: 0.05}", [0.8, 0.85, 0.9, 0.95]),
        ("{low: 16, high: 128, log2: true}", [16, 32, 64, 128]),
        ("{low: 3, high: 3, step: 1}", [3]),
    ],
)
def test_ranges_are_counted_out(write, entry, expected):
    assert values(load_space(write(f"parameters:\n  a: {entry}\n")), "a") == expected


def test_extending_changes_one_key_and_keeps_the_rest(write):
    parent = load_shipped("h200")
    file = load_space(write("extends: h200\nparameters:\n  max-num-seqs: [32, 64]\nomit: {quantization: not wanted}\n"))
    assert values(file, "max-num-seqs") == [32, 64]
    assert file.parameters["max-num-seqs"].scope == "live"
    assert set(file.parameters) == set(parent.parameters) - {"quantization"}
    assert file.rules == parent.rules
    assert file.fixed == parent.fixed


def test_extending_without_parameters_is_enough(write):
    assert load_space(write("extends: h200\n")).parameters == load_shipped("h200").parameters


def test_extending_a_file_beside_it(write):
    write("parameters: {a: [1, 2], b: [3]}\nfixed: {flags: {c: 4}}\n", "base.yaml")
    file = load_space(write("extends: base.yaml\nparameters: {a: [5]}\n"))
    assert values(file, "a") == [5]
    assert values(file, "b") == [3]
    assert file.fixed.flags == {"c": 4}
    assert file.written_at("b").endswith("base.yaml:1")


def test_a_circle_of_files_is_told(write):
    write("extends: mine.yaml\n", "other.yaml")
    assert complaint(write("extends: other.yaml\n")).startswith("other.yaml:1: 'mine.yaml' extends itself")


def test_a_users_file_takes_from_the_devices_space_only_what_measuring_needs(write):
    base = load_shipped("cpu")
    file = load_space(write("parameters: {max-num-seqs: [1, 8], dtype: [float32]}\n"), base)
    assert set(file.parameters) == {"max-num-seqs", "dtype"}
    assert file.parameters["max-num-seqs"].scope == "live"
    assert file.parameters["dtype"].precision
    assert file.fixed == base.fixed
    assert file.rules == base.rules
    assert file.seeds == []


def test_a_devices_own_seeds_are_tried_before_those_for_every_gpu():
    own, inherited = load_shipped("h200"), load_shipped("default")
    names = [seed.name for seed in own.seeds]
    assert names[0] == "fp8 throughout" and "fp8 throughout" in [seed.name for seed in inherited.seeds]
    assert names[-1] == "memory to the KV cache" and len(names) == len(set(names))


def test_a_users_fixed_flag_comes_before_the_devices(write):
    file = load_space(
        write("parameters: {a: [1]}\nfixed: {flags: {kv-cache-memory-bytes: 64M}}\n"), load_shipped("cpu")
    )
    assert file.fixed.flags["kv-cache-memory-bytes"] == 64 * 2**20
    assert file.fixed.flags["distributed-executor-backend"] == "uni"


def test_lines_of_a_persons_own_parameters_are_kept(write):
    path = write("extends: h200\nparameters:\n  max-num-seqs: [32]\n")
    file = load_space(path)
    assert file.written_at("max-num-seqs") == f"{path}:3"
    assert file.written_at("quantization") is None


def test_an_unknown_shipped_name_is_answered_with_the_nearest():
    with pytest.raises(UsageError, match=r"no search space 'h2000'; did you mean 'h200'\?"):
        load_shipped("h2000")
