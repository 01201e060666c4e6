"""First tables: endpoints, their configurations and events, tokens, and the platform's own values."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "endpoints",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("name", sa.String(63), nullable=False, unique=True),
        sa.Column("creator", sa.Text, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("tags", sa.JSON, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("updated_ms", sa.BigInteger, nullable=False),
        sa.Column("active_version", sa.Integer),
        sa.Column("pending_version", sa.Integer),
        sa.Column("failed_version", sa.Integer),
        sa.Column("last_version", sa.Integer, nullable=False),
        sa.Column("failure_message", sa.Text),
        sa.Column("stopped", sa.Boolean, nullable=False),
    )
    op.create_table(
        "config_versions",
        sa.Column("endpoint_id", sa.String(32), sa.ForeignKey("endpoints.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True),
        sa.Column("creator", sa.Text, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("definition", sa.JSON, nullable=False),
    )
    op.create_table(
        "events",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("endpoint_id", sa.String(32), sa.ForeignKey("endpoints.id", ondelete="CASCADE"), nullable=False),
        sa.Column("time_ms", sa.BigInteger, nullable=False),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("served_entity", sa.String(63)),
        sa.Column("replica", sa.String(63)),
    )
    op.create_index("events_by_endpoint", "events", ["endpoint_id", "id"])
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("sha256", sa.String(64), nullable=False, unique=True),
        sa.Column("principal", sa.Text, nullable=False),
        sa.Column("comment", sa.Text, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("expires_ms", sa.BigInteger),
    )
    op.create_table(
        "meta",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )


def downgrade() -> None:
    for table in ("meta", "tokens", "events", "config_versions", "endpoints"):
        op.drop_table(table)
