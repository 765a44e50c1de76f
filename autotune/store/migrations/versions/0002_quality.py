"""How precisions answer: quality"""

import sqlalchemy as sa
from alembic import op

revision = "0002_quality"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "autotune_quality",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("scope", sa.String(length=64), nullable=False),
        sa.Column("precision_key", sa.String(length=32), nullable=False),
        sa.Column("about", sa.JSON(), nullable=False),
        sa.Column("comparison", sa.JSON(), nullable=False),
        sa.Column("effect", sa.JSON(), nullable=False),
        sa.Column("reading", sa.LargeBinary(), nullable=True),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("measured_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("scope", "precision_key", name="uq_autotune_quality_scope"),
    )
    with op.batch_alter_table("autotune_quality", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_autotune_quality_scope"), ["scope"], unique=False)


def downgrade() -> None:
    with op.batch_alter_table("autotune_quality", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_autotune_quality_scope"))

    op.drop_table("autotune_quality")
