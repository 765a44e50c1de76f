import pytest

from autotune.errors import UsageError
from autotune.tuner.fixed_flags import parse_fixed


@pytest.mark.parametrize(
    ("argument", "flag"),
    [
        ("--dtype=half", ("dtype", "half")),
        ("--max-model-len 4096", ("max-model-len", 4096)),
        ("--gpu_memory_utilization=0.5", ("gpu-memory-utilization", 0.5)),
        ("--enforce-eager", ("enforce-eager", True)),
        ("--no-enable-prefix-caching", ("enable-prefix-caching", False)),
        ('--compilation-config={"mode": 3}', ("compilation-config", '{"mode": 3}')),
        ("--scheduler-cls=a.b=c", ("scheduler-cls", "a.b=c")),
    ],
)
def test_one_flag_per_argument(argument: str, flag: tuple[str, object]) -> None:
    assert parse_fixed([argument]).flags == (flag,)


@pytest.mark.parametrize("argument", ["dtype=half", "--", "-x", "", "--port=80", "--served_model_name x"])
def test_what_is_no_flag_or_ours_is_refused_with_its_text(argument: str) -> None:
    with pytest.raises(UsageError, match="--vllm-arg"):
        parse_fixed([argument])
