"""Brings a database to the current schema with Alembic; our revision lives in a table of our own.

Optuna keeps its revision in ``alembic_version``; ours is in ``autotune_alembic_version``, so that both
can be upgraded apart.
"""

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

VERSION_TABLE = "autotune_alembic_version"


def is_ours(table: str | None) -> bool:
    """Whether a table belongs to this project rather than to Optuna."""
    return table is not None and table.startswith("autotune_")


def alembic_config(connection: Connection) -> Config:
    """The Alembic configuration for one open connection."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    return config


def upgrade(connection: Connection) -> None:
    """Create or upgrade our tables; a database that is current is left as it is."""
    command.upgrade(alembic_config(connection), "head")
