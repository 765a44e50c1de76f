"""Log lines in vLLM's shape: loggers on stdout with process, pid and time, the rest on stderr."""

import os
import sys
import time


class Log:
    """Writes as one process; ``name`` is what stands in front of its pid."""

    def __init__(self, name: str) -> None:
        self.name = name

    def write(self, level: str, where: str, message: str) -> None:
        """One record; each line of it carries the whole prefix."""
        stamp = time.strftime("%m-%d %H:%M:%S")
        for line in message.split("\n"):
            text = f"({self.name} pid={os.getpid()}) {level} {stamp} [{where}] {line}\n"
            os.write(1, text.encode())

    def info(self, where: str, message: str) -> None:
        """One INFO record."""
        self.write("INFO", where, message)

    def warning(self, where: str, message: str) -> None:
        """One WARNING record."""
        self.write("WARNING", where, message)

    def error(self, where: str, message: str) -> None:
        """One ERROR record."""
        self.write("ERROR", where, message)


def plain(text: str) -> None:
    """A bare line on stderr, as tracebacks, argparse and uvicorn write them."""
    os.write(2, f"{text}\n".encode())


def traceback(text: str) -> str:
    """An exception's text with the head of a traceback in front."""
    return f"Traceback (most recent call last):\n{text}"


def flush() -> None:
    """Let nothing stay in Python's own buffers before a hard exit."""
    sys.stdout.flush()
    sys.stderr.flush()
