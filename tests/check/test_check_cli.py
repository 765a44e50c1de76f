"""``autotune check`` as a person or a pipeline calls it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ENVIRONMENT = {**os.environ, "HF_HOME": "/none", "COLUMNS": "100"}


def check(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    code = f"import sys; from autotune.cli.main import main; main({['check', *arguments]!r})"
    command = [sys.executable, "-c", code]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, env=ENVIRONMENT, check=False)


def test_clean_is_0_and_advice_keeps_it() -> None:
    done = check("vllm serve Qwen/Qwen3-14B --enforce-eager", "--vllm", "0.33.0", "--gpu", "h200")
    assert (done.returncode, done.stderr) == (0, "")
    assert "32 % less on an H200" in done.stdout


def test_findings_are_1_and_readable() -> None:
    done = check("vllm serve Qwen/Qwen3-14B --use-cuda-graph", "--vllm", "0.24.0", "--gpu", "rtx-4090")
    assert done.returncode == 1
    assert "vLLM 0.24.0 has no --use-cuda-graph" in done.stdout
    assert "27.5 GiB" in done.stdout and "2 errors" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("no-such-file.yaml", "--vllm", "0.33.0"),
        ("vllm serve m", "--vllm", "0.1.0"),
        ("vllm serve m", "--vllm", "new"),
        ("vllm serve m", "--vllm", "0.33.0", "--gpu", "rtx-9999"),
        ("vllm serve m", "--vllm", "0.33.0", "--model-config", "/none/config.json"),
        (),
    ],
)
def test_what_cannot_be_used_is_2(arguments: tuple[str, ...]) -> None:
    done = check(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ") and "Traceback" not in done.stderr


def test_json_holds_every_finding_and_no_secret(tmp_path: Path) -> None:
    script = tmp_path / "start.sh"
    script.write_text("export HF_TOKEN=hf_secret\nvllm serve Qwen/Qwen3-14B \\\n  --api-key sk-secret\n")
    done = check(str(script), "--vllm", "0.33.0", "--gpu", "h200", "--json")
    report = json.loads(done.stdout)
    (launch,) = report["launches"]
    assert done.returncode == 1 and not report["clean"] and report["gpu"]["name"] == "NVIDIA H200"
    assert {(f["code"], f["line"]) for f in launch["findings"]} == {("secret-in-command", 3), ("secret-in-file", 1)}
    assert "hf_secret" not in done.stdout and "sk-secret" not in done.stdout
    assert (launch["vllm"], launch["model"], launch["line"]) == ("0.33.0", "Qwen/Qwen3-14B", 2)


def test_an_images_tag_names_the_version() -> None:
    text = "services:\n  a:\n    image: vllm/vllm-openai:v0.24.0\n    command: --model m --swap-space 4\n"
    done = check("-", "--json", "--gpu", "h200", stdin=text)
    (launch,) = json.loads(done.stdout)["launches"]
    assert (launch["vllm"], launch["vllm_chosen"]) == ("0.24.0", "the image's tag")
    assert [f["code"] for f in launch["findings"]] == ["flag-removed"]


def test_words_without_quotation_marks() -> None:
    done = check("--vllm", "0.33.0", "--gpu", "h200", "--", "vllm", "serve", "Qwen/Qwen3-14B", "--max-num-seq", "4")
    assert done.returncode == 1 and "short for --max-num-seqs" in done.stdout


def test_a_config_json_decides_about_the_model(tmp_path: Path) -> None:
    config = {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 4096, "torch_dtype": "bfloat16"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    arguments = ("--vllm", "0.33.0", "--model-config", str(tmp_path), "--gpu", "h200")
    done = check("vllm serve org/own --max-model-len 8192", *arguments)
    assert done.returncode == 1 and "more than the model's 4,096" in done.stdout
