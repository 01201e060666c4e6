"""The store's tables, as SQLAlchemy sees them. The migrations create them; only `store.py` and `usage.py` query them.

All times are milliseconds since the epoch. Definitions are JSON documents, since they are read and written whole.
"""

from __future__ import annotations

from sqlalchemy import JSON, BigInteger, Boolean, Column, ForeignKey, Index, Integer, MetaData, String, Table, Text

metadata = MetaData()
_serial = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers rows by itself only for INTEGER

endpoints = Table(
    "endpoints",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("name", String(63), nullable=False, unique=True),
    Column("creator", Text, nullable=False),
    Column("description", Text, nullable=False),
    Column("tags", JSON, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("updated_ms", BigInteger, nullable=False),
    Column("active_version", Integer),
    Column("pending_version", Integer),
    Column("failed_version", Integer),
    Column("last_version", Integer, nullable=False),
    Column("failure_message", Text),
    Column("stopped", Boolean, nullable=False),
    Column("rate_limits", JSON),
)

config_versions = Table(
    "config_versions",
    metadata,
    Column("endpoint_id", String(32), ForeignKey("endpoints.id", ondelete="CASCADE"), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("creator", Text, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("definition", JSON, nullable=False),
)

events = Table(
    "events",
    metadata,
    Column("id", _serial, primary_key=True, autoincrement=True),
    Column("endpoint_id", String(32), ForeignKey("endpoints.id", ondelete="CASCADE"), nullable=False),
    Column("time_ms", BigInteger, nullable=False),
    Column("kind", String(64), nullable=False),
    Column("message", Text, nullable=False),
    Column("served_entity", String(63)),
    Column("replica", String(63)),
    Index("events_by_endpoint", "endpoint_id", "id"),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("sha256", String(64), nullable=False, unique=True),
    Column("principal", Text, nullable=False),
    Column("comment", Text, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger),
    Column("groups", JSON),
)

meta = Table(
    "meta",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("value", Text, nullable=False),
)

usage = Table(
    "usage",
    metadata,
    Column("hour_ms", BigInteger, primary_key=True, autoincrement=False),
    Column("endpoint", String(63), primary_key=True),
    Column("served_entity", String(63), primary_key=True),
    Column("principal", Text, primary_key=True),
    Column("requests", BigInteger, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("input_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("image_tokens", BigInteger, nullable=False),
    Column("mmu", BigInteger, nullable=False),
    Index("usage_by_endpoint", "endpoint", "hour_ms"),
)

usage_sources = Table(
    "usage_sources",
    metadata,
    Column("source", String(64), primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("updated_ms", BigInteger, nullable=False),
)
