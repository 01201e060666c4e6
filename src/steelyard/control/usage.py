"""What tenants used, hour by hour: takes the routers' reports in, each once, and adds up what was asked for.

Belongs to the store, which opens its database; the internal API adds, the public API reads. Endpoints are known by
their names here, so that what a deleted one took can still be billed. Old hours are forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Select, Table, delete, func, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from steelyard.contracts.usage_report import HOUR_MS, UsageReport
from steelyard.control.database import Database
from steelyard.control.tables import usage, usage_sources
from steelyard.errors import InvalidParameter

KEPT_MS = 400 * 24 * HOUR_MS
SOURCES_KEPT_MS = 30 * 24 * HOUR_MS  # a router that was not heard of for so long sends no report again
MAX_SHOWN = 10_000
_AMOUNTS = ("requests", "rows", "input_tokens", "cached_tokens", "output_tokens", "image_tokens", "mmu")
_BATCH = 1000  # databases limit how many values a statement holds


@dataclass(frozen=True, slots=True)
class UsageRecord:
    """`hour_ms`: of its begin; None: of all hours that were asked for."""

    hour_ms: int | None
    served_entity: str
    principal: str
    requests: int
    rows: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    image_tokens: int
    mmu: int


class UsageTable:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._pruned_hour = -1

    async def add(self, report: UsageReport, now_ms: int) -> None:
        """Count a report, unless it was counted before."""
        await self._database.whole(self._add(report, now_ms))

    async def _add(self, report: UsageReport, now_ms: int) -> None:
        async with self._database.transaction() as connection:
            if not await _is_new(connection, report, now_ms):
                return
            rows = [_values(row) for row in _summed(report)]
            for start in range(0, len(rows), _BATCH):
                statement = _insert(connection, usage)
                grown = {name: usage.c[name] + statement.excluded[name] for name in _AMOUNTS}
                statement = statement.on_conflict_do_update(index_elements=list(usage.primary_key.columns), set_=grown)
                await connection.execute(statement, rows[start : start + _BATCH])
            if now_ms // HOUR_MS != self._pruned_hour:
                await connection.execute(delete(usage).where(usage.c.hour_ms < now_ms - KEPT_MS))
                forgotten = usage_sources.c.updated_ms < now_ms - SOURCES_KEPT_MS
                await connection.execute(delete(usage_sources).where(forgotten))
        self._pruned_hour = now_ms // HOUR_MS

    async def read(
        self, endpoint: str, begin_ms: int, end_ms: int, by: Literal["hour", "total"], principal: str | None
    ) -> list[UsageRecord]:
        """Of the hours that begin within the time given, the earliest first. Raises InvalidParameter if too many."""
        return await self._database.whole(self._read(endpoint, begin_ms, end_ms, by, principal))

    async def _read(
        self, endpoint: str, begin_ms: int, end_ms: int, by: Literal["hour", "total"], principal: str | None
    ) -> list[UsageRecord]:
        async with self._database.transaction() as connection:
            found = (await connection.execute(_query(endpoint, begin_ms, end_ms, by, principal))).all()
        if len(found) > MAX_SHOWN:
            raise InvalidParameter(f"More than {MAX_SHOWN:,} rows; ask for less time, or for one principal.")
        return [
            UsageRecord(
                row.hour_ms if by == "hour" else None,
                row.served_entity,
                row.principal,
                *(int(getattr(row, name)) for name in _AMOUNTS),
            )
            for row in found
        ]


async def _is_new(connection: AsyncConnection, report: UsageReport, now_ms: int) -> bool:
    """Whether it has not been counted; from now on it has."""
    first = _insert(connection, usage_sources).values(source=report.source, number=0, updated_ms=now_ms)
    await connection.execute(first.on_conflict_do_nothing())
    later = (
        update(usage_sources)
        .where(usage_sources.c.source == report.source, usage_sources.c.number < report.number)
        .values(number=report.number, updated_ms=now_ms)
    )
    return (await connection.execute(later)).rowcount == 1


def _summed(report: UsageReport) -> list[Any]:
    """One row per key, by key: in one order, so that two routers' reports do not wait for each other."""
    rows: dict[tuple[int, str, str, str], Any] = {}
    for row in report.rows:
        key = (row.hour_ms, row.endpoint, row.served_entity, row.principal)
        known = rows.setdefault(key, row)
        if known is not row:
            for name in _AMOUNTS:
                setattr(known, name, getattr(known, name) + getattr(row, name))
    return [rows[key] for key in sorted(rows)]


def _values(row: Any) -> dict[str, Any]:
    keys = {
        "hour_ms": row.hour_ms,
        "endpoint": row.endpoint,
        "served_entity": row.served_entity,
        "principal": row.principal.replace("\0", "\N{REPLACEMENT CHARACTER}"),
    }
    return keys | {name: getattr(row, name) for name in _AMOUNTS}


def _insert(connection: AsyncConnection, table: Table) -> Any:
    return (postgresql if connection.dialect.name == "postgresql" else sqlite).insert(table)


def _query(
    endpoint: str, begin_ms: int, end_ms: int, by: Literal["hour", "total"], principal: str | None
) -> Select[Any]:
    who = (usage.c.served_entity, usage.c.principal)
    keys = (usage.c.hour_ms, *who) if by == "hour" else who
    sums = [func.sum(usage.c[name]).label(name) for name in _AMOUNTS]
    query = select(*keys, *sums).where(
        usage.c.endpoint == endpoint, usage.c.hour_ms >= begin_ms, usage.c.hour_ms < end_ms
    )
    if principal is not None:
        query = query.where(usage.c.principal == principal)
    return query.group_by(*keys).order_by(*keys).limit(MAX_SHOWN + 1)
