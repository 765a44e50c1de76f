"""Judges launch commands for vLLM before anything is started."""
