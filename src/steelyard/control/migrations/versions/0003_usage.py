"""What tenants used per hour, and which reports of routers are counted in it."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "usage",
        sa.Column("hour_ms", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("endpoint", sa.String(63), primary_key=True),
        sa.Column("served_entity", sa.String(63), primary_key=True),
        sa.Column("principal", sa.Text, primary_key=True),
        sa.Column("requests", sa.BigInteger, nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("input_tokens", sa.BigInteger, nullable=False),
        sa.Column("cached_tokens", sa.BigInteger, nullable=False),
        sa.Column("output_tokens", sa.BigInteger, nullable=False),
        sa.Column("image_tokens", sa.BigInteger, nullable=False),
        sa.Column("mmu", sa.BigInteger, nullable=False),
    )
    op.create_index("usage_by_endpoint", "usage", ["endpoint", "hour_ms"])
    op.create_table(
        "usage_sources",
        sa.Column("source", sa.String(64), primary_key=True),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("updated_ms", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("usage_sources")
    op.drop_table("usage")
