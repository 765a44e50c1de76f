"""Finds the best vLLM launch configuration for a GPU, proves it, and keeps it true.

The packages are the rooms of the design, read from left to right as one trial flows through them:
``host`` and ``space`` say what this machine is and what may vary, ``search`` decides what to try,
``engine`` boots vLLM, ``workload`` and ``load`` measure it, ``store`` keeps every number,
``tuner`` joins them, and ``report`` and ``export`` write the outcome.
"""

__version__ = "0.1.0"
