"""Rate limits of an endpoint, and the groups that a token's principal belongs to."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("endpoints", sa.Column("rate_limits", sa.JSON))
    op.add_column("tokens", sa.Column("groups", sa.JSON))


def downgrade() -> None:
    with op.batch_alter_table("tokens") as tokens:
        tokens.drop_column("groups")
    with op.batch_alter_table("endpoints") as endpoints:
        endpoints.drop_column("rate_limits")
