"""Opens the study's database and writes every number as it happens.

``Store.open`` takes any SQLAlchemy URL, checks that it can be written and brings our tables to the
current schema. Each method is one short transaction, so that a kill -9 loses at most the row being
written. A database that fails while a study runs becomes ``StoreError``: a full disk, a lock that does
not clear, a lost connection; nothing is half written and the study can be resumed.
"""

import errno
import sqlite3
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alembic.util.exc import CommandError
from sqlalchemy import Connection, Engine, Select, create_engine, delete, event, inspect, select, update
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.orm import Session, selectinload

from autotune.errors import StoreError, UsageError
from autotune.store.lock import database_file, study_lock
from autotune.store.models import BootRow, FailureRow, HostRow, JsonDict, PointRow, QualityRow, RunRow, utc_now
from autotune.store.schema import upgrade

DDL_ROLLS_BACK = ("sqlite", "postgresql")
EMPTY_DATABASE_BYTES = 1 << 17
_BUSY_TIMEOUT_S = 30
_RETRY_S = 0.05


@dataclass(frozen=True, slots=True)
class NewBoot:
    """What is known of an engine before it starts."""

    run_id: int
    role: str
    kind: str
    config_key: str
    flags: JsonDict
    env: JsonDict
    log_path: str
    trial: int | None = None


@dataclass(frozen=True, slots=True)
class NewFailure:
    """Why an engine gave no number."""

    cls: str
    consequence: str
    phase: str
    line: str
    details: JsonDict


class Store:
    """The study's tables. Rows that it returns are detached: read them, do not write through them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._file = database_file(engine.url)

    @classmethod
    def open(cls, url: str) -> "Store":
        """Open or create the database. Raises ``UsageError`` where the URL cannot be used."""
        parsed = _parse(url)
        with _refusing(parsed):
            engine = _engine(parsed)
            with engine.begin() as connection:
                upgrade(connection)
            return cls(engine)

    @staticmethod
    def look_into(url: str, to_come: Collection[Path] = ()) -> list[RunRow]:
        """The studies of a storage as ``runs`` gives them. Raises what ``open`` would raise, and leaves no trace.

        ``to_come`` are folders that may be missing because they will be there before the storage is opened.
        """
        parsed = _parse(url)
        file = database_file(parsed)
        with _refusing(parsed):
            if file is not None and not file.exists():
                _refuse_unwritable(file.parent, to_come)
                return []
            engine = _engine(parsed, _set_up_sqlite)
            try:
                with engine.connect() as connection, connection.begin() as transaction:
                    runs = _runs_once_upgraded(connection)
                    transaction.rollback()
                    return runs
            finally:
                engine.dispose()

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()

    @contextmanager
    def locked(self, study: str) -> Iterator[None]:
        """Hold a study for this process. Raises ``UsageError`` where another process works on it."""
        with study_lock(self._engine.url, study):
            yield

    def record_host(self, fingerprint: str, facts: JsonDict) -> int:
        """The host's id; its facts are refreshed when it was seen before."""
        with self._session() as session:
            row = session.scalar(select(HostRow).where(HostRow.fingerprint == fingerprint))
            if row is None:
                row = HostRow(fingerprint=fingerprint, facts=facts)
                session.add(row)
            row.facts, row.seen_at = facts, utc_now()
            session.flush()
            return row.id

    def start_run(self, study: str, host_id: int, identity: JsonDict, settings: JsonDict) -> int:
        """A new study's id."""
        with self._session() as session:
            row = RunRow(study=study, host_id=host_id, identity=identity, settings=settings)
            session.add(row)
            session.flush()
            return row.id

    def update_run(self, run_id: int, **values: Any) -> None:
        """Set columns of a run (``status``, ``spent_s``, ``result``, ``finished_at``, ``settings``)."""
        with self._session() as session:
            session.execute(update(RunRow).where(RunRow.id == run_id).values(**values))

    def add_boot(self, boot: NewBoot) -> int:
        """Write an engine down before it starts."""
        with self._session() as session:
            row = BootRow(
                run_id=boot.run_id,
                role=boot.role,
                kind=boot.kind,
                config_key=boot.config_key,
                flags=boot.flags,
                env=boot.env,
                log_path=boot.log_path,
                trial=boot.trial,
            )
            session.add(row)
            session.flush()
            return row.id

    def update_boot(self, boot_id: int, **values: Any) -> None:
        """Set columns of a boot (``status``, ``kind``, ``boot_s``, ``stop_s``, ``phases_s``, ``facts``)."""
        with self._session() as session:
            session.execute(update(BootRow).where(BootRow.id == boot_id).values(**values))

    def add_failure(self, boot_id: int, failure: NewFailure) -> None:
        """Say why a boot gave no number."""
        with self._session() as session:
            session.add(
                FailureRow(
                    boot_id=boot_id,
                    cls=failure.cls,
                    consequence=failure.consequence,
                    phase=failure.phase,
                    line=failure.line,
                    details=failure.details,
                )
            )

    def add_point(
        self,
        boot_id: int,
        *,
        prompt_seed: int,
        live: JsonDict,
        value: float | None,
        measurement: JsonDict,
        duration_s: float,
        details: JsonDict | None = None,
    ) -> int:
        """Keep one measurement, also one that failed its checks (``value`` None)."""
        with self._session() as session:
            row = PointRow(
                boot_id=boot_id,
                prompt_seed=prompt_seed,
                live=live,
                value=value,
                measurement=measurement,
                details=details,
                duration_s=duration_s,
            )
            session.add(row)
            session.flush()
            return row.id

    def qualities(self, scope: str) -> list[QualityRow]:
        """What is known about precisions of one model on one vLLM and device, oldest first."""
        with self._session() as session:
            return list(session.scalars(select(QualityRow).where(QualityRow.scope == scope).order_by(QualityRow.id)))

    def add_quality(
        self,
        scope: str,
        precision_key: str,
        *,
        about: JsonDict,
        comparison: JsonDict,
        effect: JsonDict,
        seconds: float,
        reading: bytes | None = None,
    ) -> None:
        """Keep one measured quality; a second one of the same precision replaces the first."""
        with self._session() as session:
            session.execute(
                delete(QualityRow).where(QualityRow.scope == scope, QualityRow.precision_key == precision_key)
            )
            row = QualityRow(
                scope=scope,
                precision_key=precision_key,
                about=about,
                comparison=comparison,
                effect=effect,
                seconds=seconds,
                reading=reading,
            )
            session.add(row)

    def run(self, study: str) -> RunRow | None:
        """The study by name, with its host, boots, points and failures; None where there is none."""
        with self._session() as session:
            return session.scalar(_whole_run().where(RunRow.study == study))

    def runs(self) -> list[RunRow]:
        """All studies in this database, the newest first."""
        with self._session() as session:
            return _all_runs(session)

    def interrupt_unfinished_boots(self, run_id: int) -> int:
        """Mark engines that a killed tuner left as booting or ready; how many there were."""
        unfinished = (BootRow.run_id == run_id, BootRow.status.in_(("booting", "ready")))
        with self._session() as session:
            rows = list(session.scalars(select(BootRow).where(*unfinished)))
            for row in rows:
                row.status = "interrupted"
            return len(rows)

    @contextmanager
    def _session(self) -> Iterator[Session]:
        # SQLite would go on writing into the deleted file, and all of it would be gone at the end.
        if self._file is not None and not self._file.exists():
            raise StoreError(
                f"the study's database {self._file} was removed while the study ran, and its numbers with it. "
                "Give the same command again to start anew."
            )
        try:
            with Session(self._engine, expire_on_commit=False) as session, session.begin():
                yield session
        except SQLAlchemyError as error:
            raise StoreError(
                f"the study's database failed: {_reason(error)}. What was measured before is kept; "
                "free the disk or the lock and give the same command again."
            ) from error


@contextmanager
def _refusing(url: URL) -> Iterator[None]:
    """Within, what keeps a storage from being opened becomes ``UsageError``."""
    try:
        yield
    except CommandError as error:
        raise UsageError(
            f"the storage {url.render_as_string(hide_password=True)} was written by a newer autotune ({error}). "
            "Use that version, or give another --storage."
        ) from error
    except (SQLAlchemyError, NoSuchModuleError, ImportError, sqlite3.OperationalError) as error:
        raise UsageError(
            f"cannot open the storage {url.render_as_string(hide_password=True)}: {_reason(error)}. Give a SQLAlchemy "
            "URL that can be written, such as sqlite:///study.db."
        ) from error


def _refuse_unwritable(folder: Path, to_come: Collection[Path]) -> None:
    """Raise SQLite's own words where no database can be made in a folder."""
    if folder in [path.resolve() for path in to_come]:
        return
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(EMPTY_DATABASE_BYTES))
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        words = "database or disk is full" if full else "unable to open database file"
        raise sqlite3.OperationalError(words) from error


def _runs_once_upgraded(connection: Connection) -> list[RunRow]:
    """All studies, after an upgrade that the caller's transaction can take back; none where it could not be."""
    if connection.dialect.name not in DDL_ROLLS_BACK and not inspect(connection).has_table(RunRow.__tablename__):
        return []
    upgrade(connection)
    with Session(connection, expire_on_commit=False) as session:
        return _all_runs(session)


def _all_runs(session: Session) -> list[RunRow]:
    return list(session.scalars(_whole_run().order_by(RunRow.id.desc())))


def _whole_run() -> Select[RunRow]:
    boots = selectinload(RunRow.boots)
    return select(RunRow).options(
        selectinload(RunRow.host), boots.selectinload(BootRow.points), boots.selectinload(BootRow.failure)
    )


def _parse(url: str) -> URL:
    try:
        return make_url(url)
    except ArgumentError as error:
        raise UsageError(f"{url!r} is no SQLAlchemy URL. Write it as sqlite:///study.db.") from error


def _engine(url: URL, set_up: Callable[[Any, Any], None] | None = None) -> Engine:
    """``set_up`` readies each new connection of an SQLite database; by default it gets a write-ahead log."""
    if url.get_backend_name() != "sqlite":
        return create_engine(url, pool_pre_ping=True)
    own = {} if "timeout" in url.query else {"timeout": _BUSY_TIMEOUT_S}
    engine = create_engine(url, connect_args=own)
    event.listen(engine, "connect", set_up or _set_up_to_write)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _set_up_sqlite(connection: Any, _record: Any) -> None:
    # Python's driver would commit before every CREATE TABLE: a kill then leaves half a schema that nothing mends.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _set_up_to_write(connection: Any, record: Any) -> None:
    _set_up_sqlite(connection, record)
    cursor = connection.cursor()
    _use_write_ahead_log(cursor)
    cursor.close()


def _use_write_ahead_log(cursor: Any) -> None:
    # The first to open a database changes its file; SQLite refuses the others meanwhile without waiting.
    until = time.monotonic() + _BUSY_TIMEOUT_S
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
        time.sleep(_RETRY_S)


def _begin_sqlite(connection: Connection) -> None:
    # A plain BEGIN that reads and then writes fails at once, without waiting, if another study wrote meanwhile.
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _reason(error: BaseException) -> str:
    cause = getattr(error, "orig", None) or error
    return str(cause).strip().splitlines()[0].rstrip(".")
