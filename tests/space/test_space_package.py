import subprocess
import sys

import pytest

import autotune.space


@pytest.mark.parametrize("name", autotune.space.__all__)
def test_every_exported_name_is_there(name):
    assert getattr(autotune.space, name) is not None


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        autotune.space.nothing  # noqa: B018


def test_values_come_without_pydantic_and_yaml():
    code = (
        "import sys, autotune.space.parameters, autotune.space.facts, autotune.space.model;"
        "print([m for m in ('pydantic', 'yaml', 'numpy', 'optuna', 'torch', 'vllm') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
