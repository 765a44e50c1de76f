"""Makes a GPTQ or AWQ checkpoint (4 bits, groups of 64) of a small model on a CPU, as a variant to compare.

    pip install llmcompressor==0.14.0.1      # into an environment of its own that has torch and transformers
    OMP_NUM_THREADS=1 python benchmarks/quality/quantize.py gptq MODEL OUT
    OMP_NUM_THREADS=1 python benchmarks/quality/quantize.py awq MODEL OUT

Calibrates on three of the passages that ship for the quality guard, 128 tokens each: enough for a checkpoint that
loads and answers, too little for one to be proud of. With two OpenMP threads on two cores that other work shares
it takes an hour instead of half a minute.
"""

import argparse
from pathlib import Path

import torch
from llmcompressor import oneshot
from llmcompressor.modifiers.awq import AWQModifier
from llmcompressor.modifiers.gptq import GPTQModifier
from llmcompressor.pipelines.cache import IntermediatesCache
from transformers import AutoModelForCausalLM, AutoTokenizer

PASSAGES = Path(__file__).parents[2] / "autotune" / "quality" / "passages"
MODIFIERS = {"gptq": (GPTQModifier, True), "awq": (AWQModifier, False)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=MODIFIERS)
    parser.add_argument("model")
    parser.add_argument("out")
    given = parser.parse_args()
    modifier, symmetric = MODIFIERS[given.kind]
    weights = {"num_bits": 4, "type": "int", "symmetric": symmetric, "strategy": "group", "group_size": 64}
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    # AWQ pins its cache for a device that a CPU host does not have.
    IntermediatesCache.pin_memory = lambda self, index: None
    tokenizer = AutoTokenizer.from_pretrained(given.model)
    model = AutoModelForCausalLM.from_pretrained(given.model, dtype=torch.bfloat16)
    oneshot(model=model, dataset=calibration(tokenizer), recipe=modifier(config_groups=groups, ignore=["lm_head"]))
    model.save_pretrained(given.out, save_compressed=True)
    tokenizer.save_pretrained(given.out)


def calibration(tokenizer: AutoTokenizer) -> torch.utils.data.DataLoader:
    """Three passages as batches of one."""
    texts = [path.read_text() for path in sorted(PASSAGES.glob("*.txt"))][3:12:3]
    rows = [tokenizer(text, max_length=128, truncation=True) for text in texts]
    keep = ("input_ids", "attention_mask")
    return torch.utils.data.DataLoader([{k: torch.tensor(row[k]) for k in keep} for row in rows], batch_size=1)


if __name__ == "__main__":
    main()
