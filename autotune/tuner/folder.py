"""The study's folder: where everything that a study writes lies, and the lock that keeps it to one tuner.

OUT/study.db      the default storage
OUT/logs/         one log per engine
OUT/cache/        vLLM's compile cache, one for the whole study
OUT/best/         the exported files
"""

import errno
import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from autotune.errors import UsageError
from autotune.store.lock import file_url


@dataclass(frozen=True, slots=True)
class StudyFolder:
    """Paths below ``root``."""

    root: Path

    @property
    def logs(self) -> Path:
        """Engine logs."""
        return self.root / "logs"

    @property
    def cache(self) -> Path:
        """``VLLM_CACHE_ROOT`` of every engine."""
        return self.root / "cache"

    @property
    def best(self) -> Path:
        """The exported files."""
        return self.root / "best"

    @property
    def default_storage(self) -> str:
        """The SQLAlchemy URL that is used when none is given."""
        return file_url(self.root / "study.db")

    def create(self) -> None:
        """Make the folders and prove that they can be written. Raises ``UsageError``."""
        with self._refusing():
            for folder in (self.root, self.logs, self.cache):
                folder.mkdir(parents=True, exist_ok=True)
            probe = self.root / f".probe-{os.getpid()}"
            probe.write_bytes(b"autotune")
            probe.unlink()

    def refuse_unwritable(self) -> None:
        """Raise ``UsageError`` where ``create`` would; makes nothing."""
        with self._refusing():
            nearest = next(path for path in (self.root, *self.root.parents) if path.exists())
            if not nearest.is_dir():
                code = errno.EEXIST if nearest == self.root else errno.ENOTDIR
                raise OSError(code, os.strerror(code))
            with tempfile.TemporaryFile(dir=nearest) as probe:
                probe.write(b"autotune")

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UsageError(
                f"--out {self.root} cannot be written: {error.strerror}. Give another folder with --out."
            ) from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for this process; the kernel frees it when the process dies in any way."""
        with open(self.root / ".lock", "a+b") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise UsageError(
                    f"another autotune works on {self.root}. Wait for it, or give another --study or --out."
                ) from error
            yield
