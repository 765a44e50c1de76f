"""Points tell what limited them, their energy and what else their objective says"""

import sqlalchemy as sa
from alembic import op

revision = "0003_point_details"
down_revision = "0002_quality"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("autotune_point", sa.Column("details", sa.JSON(), nullable=True))


def downgrade() -> None:
    op.drop_column("autotune_point", "details")
