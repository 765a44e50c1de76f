"""The installed vLLM is read live."""

from pathlib import Path

from fake_vllm import make_fake_python

from autotune.check.check import check_target


def test_the_installed_version_is_read_from_its_own_sources(tmp_path: Path) -> None:
    """The stand-in's sources lack most flags of the release whose number it bears."""
    python = make_fake_python(tmp_path / "venv")
    report = check_target("vllm serve m --max-num-seqs 8 --disable-cascade-attn", python=python, environ={})
    (checked,) = report.launches
    assert checked.vllm == "0.32.0" and checked.vllm_why == f"installed ({python})"
    (finding,) = checked.findings
    assert finding.code == "flag-removed" and "this build" in finding.why


def test_another_version_is_not_looked_up_here(tmp_path: Path) -> None:
    report = check_target("vllm serve m", vllm="0.24.0", python=tmp_path / "none", environ={})
    assert report.launches[0].vllm == "0.24.0"
