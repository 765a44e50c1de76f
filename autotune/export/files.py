"""Writes exported files so that a reader never sees half of one, also when the writer is killed."""

import os
import tempfile
from pathlib import Path

from autotune.errors import UsageError


def write_atomic(path: Path, text: str, *, executable: bool = False) -> None:
    """Write beside ``path``, flush to the disk, then rename. Raises ``UsageError`` where it cannot."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            os.chmod(name, 0o755 if executable else 0o644)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}. Choose another folder or free the disk.") from error
