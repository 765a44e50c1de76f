import sqlite3
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import optuna
import pytest
from sqlalchemy import inspect
from sqlalchemy.engine import make_url

from autotune.errors import StoreError, UsageError
from autotune.store.lock import study_lock
from autotune.store.models import Base
from autotune.store.schema import VERSION_TABLE, upgrade
from autotune.store.store import NewBoot, NewFailure, Store, _engine


def new_boot(run_id: int) -> NewBoot:
    return NewBoot(run_id, "trial", "plain", "abc", {"max-num-seqs": 4}, {}, "engine.log", trial=3)


def store_with_run(url: str) -> tuple[Store, int]:
    store = Store.open(url)
    host_id = store.record_host("f00d", {"cpu": "x"})
    return store, store.start_run("s", host_id, {"model": "m"}, {"budget_s": 60})


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/study.db"


def test_everything_written_is_read_back_by_a_second_opening(url: str) -> None:
    store, run_id = store_with_run(url)
    boot_id = store.add_boot(new_boot(run_id))
    store.add_point(boot_id, prompt_seed=7, live={}, value=12.5, measurement={"n": 3}, duration_s=1.0)
    store.add_failure(boot_id, NewFailure("kv_cache_too_small", "teaches", "kv", "ValueError: x", {"margin": 1}))
    store.close()

    run = Store.open(url).run("s")

    assert run is not None and run.host.facts == {"cpu": "x"}
    (boot,) = run.boots
    assert (boot.flags, boot.trial, boot.status) == ({"max-num-seqs": 4}, 3, "booting")
    assert boot.points[0].value == 12.5 and boot.points[0].measurement == {"n": 3}
    assert boot.failure is not None and boot.failure.cls == "kv_cache_too_small"


def test_the_migrated_schema_equals_the_models(url: str) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext
    from sqlalchemy import create_engine

    Store.open(url).close()
    with create_engine(url).connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        assert compare_metadata(context, Base.metadata) == []


def test_optuna_shares_the_database_and_both_survive_reopening(url: str) -> None:
    store, _ = store_with_run(url)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(study_name="s", storage=url)
    study.add_trial(optuna.trial.create_trial(value=1.0))
    store.close()

    assert Store.open(url).run("s") is not None
    assert len(optuna.load_study(study_name="s", storage=url).trials) == 1


def test_the_same_host_is_one_row(url: str) -> None:
    store = Store.open(url)
    assert store.record_host("a", {"ram": 1}) == store.record_host("a", {"ram": 2})


def test_unfinished_boots_of_a_killed_tuner_are_marked(url: str) -> None:
    store, run_id = store_with_run(url)
    store.add_boot(new_boot(run_id))
    done = store.add_boot(new_boot(run_id))
    store.update_boot(done, status="stopped")

    assert store.interrupt_unfinished_boots(run_id) == 1
    run = store.run("s")
    assert run is not None and [b.status for b in run.boots] == ["interrupted", "stopped"]


@pytest.mark.parametrize(
    "bad",
    ["nonsense", "sqlite:////proc/no/such/place.db", "nosuchdb://host/x", "postgresql+nosuch://u:secret@h/x"],
)
def test_a_url_that_cannot_be_opened_is_a_usage_error_without_secrets(bad: str) -> None:
    with pytest.raises(UsageError) as caught:
        Store.open(bad)
    assert "secret" not in str(caught.value) and "sqlite:///study.db" in str(caught.value)


def test_a_file_that_is_no_database_is_a_usage_error(tmp_path: Path) -> None:
    path = tmp_path / "text.db"
    path.write_text("these are words, not a database, and rather many of them " * 20)
    with pytest.raises(UsageError, match="cannot open"):
        Store.open(f"sqlite:///{path}")


def test_the_schema_is_made_whole_or_not_at_all(url: str) -> None:
    engine = _engine(make_url(url))
    with pytest.raises(RuntimeError), engine.begin() as connection:
        upgrade(connection)
        raise RuntimeError("killed here")
    assert inspect(engine).get_table_names() == []
    Store.open(url).close()


def test_a_locked_database_stops_clearly_and_keeps_what_it_had(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune.store.store._BUSY_TIMEOUT_S", 0.1)
    store, run_id = store_with_run(url)
    holder = sqlite3.connect(tmp_path / "study.db")
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked"):
        store.add_boot(new_boot(run_id))
    holder.rollback()
    assert store.add_boot(new_boot(run_id)) == 1


def test_a_full_disk_stops_clearly(url: str) -> None:
    store, run_id = store_with_run(url)
    with store._engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count=1")
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")
    with pytest.raises(StoreError, match="full"):
        for _ in range(200):
            boot = store.add_boot(new_boot(run_id))
            store.add_point(boot, prompt_seed=1, live={}, value=None, measurement={"x": "y" * 5000}, duration_s=1)


def test_a_study_is_held_by_one_process_however_its_database_is_named(url: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    first, second = Store.open(url), Store.open(f"sqlite:///{tmp_path}/link/study.db")
    with first.locked("s"):
        with pytest.raises(UsageError, match="another autotune works on the study s"), second.locked("s"):
            pass
        with second.locked("another"):
            pass
    with second.locked("s"):
        pass


def test_a_database_on_a_server_is_locked_by_its_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    here, other = make_url("postgresql://me:secret@db/autotune"), make_url("postgresql://me:secret@db2/autotune")
    with study_lock(here, "s"):
        with pytest.raises(UsageError), study_lock(here, "s"):
            pass
        with study_lock(other, "s"):
            pass
    assert "secret" not in "".join(path.name + path.read_text() for path in tmp_path.iterdir())


def test_studies_that_write_to_one_database_at_once_wait_for_each_other(url: str) -> None:
    def write(name: str) -> None:
        store = Store.open(url)
        for number in range(30):
            store.record_host(f"{name}-{number}", {})
        store.close()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(write, "abcd")) == [None] * 4
    with sqlite3.connect(Path(url.removeprefix("sqlite:///"))) as database:
        assert database.execute("select count(*) from autotune_host").fetchone() == (120,)


def test_studies_that_open_a_new_database_at_once_wait_for_each_other(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        for number in range(20):
            new = f"sqlite:///{tmp_path}/{number}.db"
            for store in pool.map(Store.open, [new] * 8):
                store.close()
            with sqlite3.connect(tmp_path / f"{number}.db") as database:
                assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_database_that_was_removed_is_told_and_not_written_into_nowhere(url: str) -> None:
    store, run_id = store_with_run(url)
    Path(url.removeprefix("sqlite:///")).unlink()
    with pytest.raises(StoreError, match=r"study\.db was removed while the study ran"):
        store.add_boot(new_boot(run_id))
