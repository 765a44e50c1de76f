"""A stand-in for the package ``vllm``: same commands, logs, processes and HTTP interface, no model."""

from vllm._version import __version__

__all__ = ["__version__"]
