import shlex

from hypothesis import given
from hypothesis import strategies as st

from autotune.space.config import LaunchConfig

NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,20}", fullmatch=True)
VALUES = st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=20))
FLAGS = st.dictionaries(NAMES, VALUES, max_size=6)
CONFIGS = st.builds(LaunchConfig.of, FLAGS, st.dictionaries(NAMES, st.text(max_size=8), max_size=3))


@given(FLAGS)
def test_order_of_flags_does_not_matter(flags):
    backwards = LaunchConfig.of(dict(reversed(flags.items())))
    assert backwards == LaunchConfig.of(flags)
    assert backwards.key() == LaunchConfig.of(flags).key()


@given(CONFIGS, CONFIGS)
def test_what_is_merged_on_top_wins_and_the_rest_stays(below, above):
    merged = below.merged(above)
    assert dict(merged.flags) == {**dict(below.flags), **dict(above.flags)}
    assert dict(merged.env) == {**dict(below.env), **dict(above.env)}


@given(CONFIGS)
def test_differences_to_itself_are_none_and_to_nothing_are_all(config):
    assert config.differences(config) == {}
    assert set(config.differences(LaunchConfig())) == {name for name, _ in config.flags}


@given(CONFIGS)
def test_a_shell_reads_the_printed_line_as_the_same_words(config):
    if config.flags:
        assert shlex.split(str(config))[len(config.env) :] == config.argv()


def test_booleans_become_a_flag_and_its_negation():
    config = LaunchConfig.of({"enforce-eager": True, "enable-prefix-caching": False, "max-num-seqs": 8})
    assert config.argv() == ["--no-enable-prefix-caching", "--enforce-eager", "--max-num-seqs", "8"]


def test_without_takes_flags_back_to_the_default():
    config = LaunchConfig.of({"a": 1, "b": 2}, {"E": "1"})
    assert config.without("a", "missing") == LaunchConfig.of({"b": 2}, {"E": "1"})
