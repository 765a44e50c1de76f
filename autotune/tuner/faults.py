"""Names what the machine under a study can do to it: a full disk, a locked or lost database.

Our own tables speak for themselves (``StoreError``). Optuna's tables lie in the same database and raise SQLAlchemy's
errors or their own; files raise ``OSError``, also when the study's folder is removed meanwhile. All of these end the
study with one cause in words. What was measured before is kept, because each point is one transaction.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from autotune.errors import EnvironmentFault, StoreError

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
DISK_AT_FAULT = (*NO_ROOM, errno.EIO, errno.EROFS)


@contextmanager
def named_faults() -> Iterator[None]:
    """Within the block such errors become ``StoreError`` or ``EnvironmentFault``."""
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (SQLAlchemyError, StorageInternalError) as error:
        raise StoreError(
            f"the study's database failed: {_reason(error)}. What was measured before is kept; "
            "free the disk or the lock and give the same command again."
        ) from error
    except OSError as error:
        if error.filename is None and error.errno not in DISK_AT_FAULT:
            raise
        raise EnvironmentFault(_told(error)) from error


def _told(error: OSError) -> str:
    where = f" ({error.filename})" if error.filename else ""
    again = "give the same command again; the study is kept."
    if error.errno in NO_ROOM:
        return f"the disk failed: {error.strerror}{where}. Free some space and {again}"
    if error.errno in DISK_AT_FAULT:
        return f"the disk failed: {error.strerror}{where}. Look at the disk and {again}"
    if error.errno == errno.ENOENT:
        return f"{error.filename} is gone. If the study's folder was removed or moved, put it back and {again}"
    return f"{error.strerror}{where}. Mend that and {again}"


def _reason(error: BaseException) -> str:
    """The database's own words: Optuna wraps SQLAlchemy's error, which wraps the driver's."""
    wrapped = error.__cause__ or error
    cause = getattr(wrapped, "orig", None) or wrapped
    return str(cause).strip().splitlines()[0].rstrip(".")
