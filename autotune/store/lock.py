"""One tuner per study: a lock that is keyed by the study's database and name, whatever folder the tuner writes to.

The lock is the kernel's, on a small file: beside an SQLite database, in the folder for temporary files for a
database on a server. It ends with the process, however that dies. A lock of this host is enough, because a
study belongs to one host: another one is refused when it tries to resume.
"""

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.engine import URL

from autotune.errors import UsageError


def file_url(path: Path) -> str:
    """The URL of an SQLite database, whatever letters its path has."""
    return URL.create("sqlite", database=str(path)).render_as_string()


def database_file(url: URL) -> Path | None:
    """The file of an SQLite database; None for one in memory or on a server."""
    name = url.database
    if url.get_backend_name() != "sqlite" or not name or name == ":memory:" or name.startswith("file:"):
        return None
    return Path(name).resolve()


@contextmanager
def study_lock(url: URL, study: str) -> Iterator[None]:
    """Hold the study for this process. Raises ``UsageError`` where another one holds it."""
    with open(_lock_file(url, study), "a+b") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(
                f"another autotune works on the study {study} in this storage. Wait for it, or give another --study."
            ) from error
        yield


def _lock_file(url: URL, study: str) -> Path:
    file = database_file(url)
    if file is not None:
        return file.with_name(f"{file.name}.{_digest(study)}.lock")
    name = f"autotune-{os.getuid()}-{_digest(url.render_as_string(hide_password=True), study)}.lock"
    return Path(tempfile.gettempdir()) / name


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
