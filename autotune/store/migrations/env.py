"""Alembic's entry point: upgrades the connection that ``Store.open`` hands over."""

from alembic import context

from autotune.store.models import Base
from autotune.store.schema import VERSION_TABLE, is_ours

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=Base.metadata,
    version_table=VERSION_TABLE,
    include_name=lambda name, kind, parents: kind != "table" or is_ours(name),
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
