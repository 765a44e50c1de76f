"""The first tables: host, run, boot, point, failure"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "autotune_host",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("fingerprint"),
    )
    op.create_table(
        "autotune_run",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("study", sa.String(length=255), nullable=False),
        sa.Column("host_id", sa.Integer(), nullable=False),
        sa.Column("identity", sa.JSON(), nullable=False),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.Column("status", sa.String(length=32), nullable=False),
        sa.Column("spent_s", sa.Float(), nullable=False),
        sa.Column("result", sa.JSON(), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["host_id"],
            ["autotune_host.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("study"),
    )
    op.create_table(
        "autotune_boot",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("trial", sa.Integer(), nullable=True),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("config_key", sa.String(length=32), nullable=False),
        sa.Column("flags", sa.JSON(), nullable=False),
        sa.Column("env", sa.JSON(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("boot_s", sa.Float(), nullable=True),
        sa.Column("stop_s", sa.Float(), nullable=True),
        sa.Column("phases_s", sa.JSON(), nullable=True),
        sa.Column("facts", sa.JSON(), nullable=True),
        sa.Column("log_path", sa.Text(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"],
            ["autotune_run.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("autotune_boot", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_autotune_boot_config_key"), ["config_key"], unique=False)
        batch_op.create_index(batch_op.f("ix_autotune_boot_run_id"), ["run_id"], unique=False)

    op.create_table(
        "autotune_failure",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("boot_id", sa.Integer(), nullable=False),
        sa.Column("cls", sa.String(length=64), nullable=False),
        sa.Column("consequence", sa.String(length=32), nullable=False),
        sa.Column("phase", sa.String(length=32), nullable=False),
        sa.Column("line", sa.Text(), nullable=False),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["boot_id"],
            ["autotune_boot.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("boot_id"),
    )
    with op.batch_alter_table("autotune_failure", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_autotune_failure_cls"), ["cls"], unique=False)

    op.create_table(
        "autotune_point",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("boot_id", sa.Integer(), nullable=False),
        sa.Column("prompt_seed", sa.Integer(), nullable=False),
        sa.Column("live", sa.JSON(), nullable=False),
        sa.Column("value", sa.Float(), nullable=True),
        sa.Column("measurement", sa.JSON(), nullable=False),
        sa.Column("duration_s", sa.Float(), nullable=False),
        sa.Column("measured_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["boot_id"],
            ["autotune_boot.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("autotune_point", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_autotune_point_boot_id"), ["boot_id"], unique=False)


def downgrade() -> None:
    with op.batch_alter_table("autotune_point", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_autotune_point_boot_id"))

    op.drop_table("autotune_point")
    with op.batch_alter_table("autotune_failure", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_autotune_failure_cls"))

    op.drop_table("autotune_failure")
    with op.batch_alter_table("autotune_boot", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_autotune_boot_run_id"))
        batch_op.drop_index(batch_op.f("ix_autotune_boot_config_key"))

    op.drop_table("autotune_boot")
    op.drop_table("autotune_run")
    op.drop_table("autotune_host")
