"""The store: what users want, what happened, and who may ask. Called by the API and the reconcile loop of one control.

Each method is one transaction, which runs to its end even if its caller is cancelled. It decides nothing about
replicas and knows nothing of processes. Every method may raise `Unavailable`; the data path never waits for any.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import msgspec
from sqlalchemy import CursorResult, Row, Select, and_, delete, insert, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from steelyard.contracts.snapshot import RateLimitView
from steelyard.control.database import Database
from steelyard.control.definitions import ConfigDefinition
from steelyard.control.records import ConfigRecord, EndpointRecord, Event, TokenRecord
from steelyard.control.tables import config_versions, endpoints, events, meta, tokens
from steelyard.control.usage import UsageTable
from steelyard.errors import AlreadyExists, Conflict, InvalidState, NotFound

EVENTS_PER_ENDPOINT = 1_000
_SNAPSHOT_VERSION = "snapshot_version"
P = ParamSpec("P")
T = TypeVar("T")


def _whole(
    method: Callable[Concatenate[Store, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Store, P], Coroutine[Any, Any, T]]:
    @functools.wraps(method)
    async def run(store: Store, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await store._database.whole(method(store, *args, **kwargs))

    return run


class Store:
    """`usage` counts what tenants took, in the same database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.usage = UsageTable(database)

    @classmethod
    async def open(cls, url: str) -> Store:
        """Raises ValueError for an unusable URL, Unavailable when the database does not answer."""
        return cls(await Database.open(url))

    async def close(self) -> None:
        await self._database.close()

    # Endpoints

    @_whole
    async def create_endpoint(self, endpoint: EndpointRecord, definition: ConfigDefinition) -> EndpointRecord:
        """Adds `endpoint` with `definition` as pending version 1. Raises AlreadyExists."""
        config = ConfigRecord(1, endpoint.creator, endpoint.created_ms, definition)
        row = {
            "id": endpoint.id,
            "name": endpoint.name,
            "creator": endpoint.creator,
            "description": endpoint.description,
            "tags": endpoint.tags,
            "created_ms": endpoint.created_ms,
            "updated_ms": endpoint.updated_ms,
            "pending_version": 1,
            "last_version": 1,
            "stopped": False,
            "rate_limits": [msgspec.to_builtins(limit) for limit in endpoint.rate_limits],
        }
        try:
            async with self._database.transaction() as connection:
                await connection.execute(insert(endpoints).values(row))
                await _add_config(connection, endpoint.id, config)
        except IntegrityError as error:
            raise AlreadyExists(f"An endpoint named {endpoint.name!r} exists already.") from error
        return replace(endpoint, pending=config)

    @_whole
    async def endpoint(self, name: str) -> EndpointRecord:
        """Raises NotFound."""
        async with self._database.transaction() as connection:
            return await _endpoint(connection, name)

    @_whole
    async def all_endpoints(self) -> list[EndpointRecord]:
        """Sorted by name."""
        async with self._database.transaction() as connection:
            rows = (await connection.execute(select(endpoints).order_by(endpoints.c.name))).all()
            configs = await _configs(connection, _used_versions())
            return [_record(row, configs) for row in rows]

    @_whole
    async def begin_update(
        self, name: str, definition: ConfigDefinition | None, *, principal: str, now_ms: int, start: bool = False
    ) -> EndpointRecord:
        """Makes `definition` (None: the active one) the pending configuration.

        With `start`, a stopped endpoint starts. Raises NotFound, Conflict during an update, InvalidState when the
        endpoint is stopped (or, with `start`, is not).
        """
        async with self._database.transaction() as connection:
            endpoint = await _endpoint(connection, name)
            _refuse_during_update(endpoint)
            if endpoint.stopped != start:
                raise InvalidState(
                    f"Endpoint {name!r} is not stopped." if start else f"Endpoint {name!r} is stopped; start it first."
                )
            if definition is None:
                source = endpoint.active or endpoint.failed
                if source is None:
                    raise InvalidState(f"Endpoint {name!r} has no configuration to start.")
                definition = source.definition
            row = await connection.execute(select(endpoints.c.last_version).where(endpoints.c.id == endpoint.id))
            version = int(row.scalar_one()) + 1
            await _add_config(connection, endpoint.id, ConfigRecord(version, principal, now_ms, definition))
            changes = {
                "pending_version": version,
                "last_version": version,
                "failed_version": None,
                "failure_message": None,
                "stopped": False,
                "updated_ms": now_ms,
            }
            await connection.execute(update(endpoints).where(endpoints.c.id == endpoint.id).values(changes))
            return await _endpoint(connection, name)

    @_whole
    async def promote(self, endpoint_id: str, version: int, now_ms: int) -> bool:
        """Makes pending `version` the active one. False when it is no longer pending."""
        changes = {"active_version": version, "pending_version": None, "updated_ms": now_ms}
        return await self._finish_update(endpoint_id, version, changes)

    @_whole
    async def fail_update(self, endpoint_id: str, version: int, message: str, now_ms: int) -> bool:
        """Gives pending `version` up and keeps the reason. False when it is no longer pending."""
        changes = {
            "pending_version": None,
            "failed_version": version,
            "failure_message": _storable(message),
            "updated_ms": now_ms,
        }
        return await self._finish_update(endpoint_id, version, changes)

    async def _finish_update(self, endpoint_id: str, version: int, changes: dict[str, Any]) -> bool:
        is_pending = and_(endpoints.c.id == endpoint_id, endpoints.c.pending_version == version)
        async with self._database.transaction() as connection:
            result = await connection.execute(update(endpoints).where(is_pending).values(changes))
            return cast("CursorResult[Any]", result).rowcount == 1

    @_whole
    async def stop_endpoint(self, name: str, now_ms: int) -> EndpointRecord:
        """Raises NotFound, Conflict during an update, InvalidState when it is stopped already."""
        async with self._database.transaction() as connection:
            endpoint = await _endpoint(connection, name)
            _refuse_during_update(endpoint)
            if endpoint.stopped:
                raise InvalidState(f"Endpoint {name!r} is stopped already.")
            changes = {"stopped": True, "updated_ms": now_ms}
            await connection.execute(update(endpoints).where(endpoints.c.id == endpoint.id).values(changes))
            return await _endpoint(connection, name)

    @_whole
    async def change_tags(self, name: str, add: dict[str, str], remove: Sequence[str], now_ms: int) -> dict[str, str]:
        """Returns all tags after the change. Raises NotFound."""
        async with self._database.transaction() as connection:
            endpoint = await _endpoint(connection, name)
            tags = {key: value for key, value in endpoint.tags.items() if key not in set(remove)} | add
            changes = {"tags": tags, "updated_ms": now_ms}
            await connection.execute(update(endpoints).where(endpoints.c.id == endpoint.id).values(changes))
            return tags

    @_whole
    async def set_rate_limits(self, name: str, limits: Sequence[RateLimitView], now_ms: int) -> EndpointRecord:
        """In the place of those that it had. Raises NotFound."""
        async with self._database.transaction() as connection:
            endpoint = await _endpoint(connection, name)
            changes = {"rate_limits": [msgspec.to_builtins(limit) for limit in limits], "updated_ms": now_ms}
            await connection.execute(update(endpoints).where(endpoints.c.id == endpoint.id).values(changes))
            return await _endpoint(connection, name)

    @_whole
    async def delete_endpoint(self, name: str) -> EndpointRecord:
        """Removes it with its configurations and events; returns what it was. Raises NotFound."""
        async with self._database.transaction() as connection:
            endpoint = await _endpoint(connection, name)
            await connection.execute(delete(endpoints).where(endpoints.c.id == endpoint.id))
            return endpoint

    # Events

    @_whole
    async def add_events(self, new: Sequence[Event]) -> None:
        """Keeps the newest `EVENTS_PER_ENDPOINT` of each endpoint; drops those of endpoints that are gone."""
        if not new:
            return
        async with self._database.transaction() as connection:
            touched = {event.endpoint_id for event in new}
            found = await connection.execute(
                select(endpoints.c.id).where(endpoints.c.id.in_(touched)).with_for_update()
            )
            known = set(found.scalars())
            rows = [
                {
                    "endpoint_id": event.endpoint_id,
                    "time_ms": event.time_ms,
                    "kind": event.kind,
                    "message": _storable(event.message),
                    "served_entity": event.served_entity,
                    "replica": event.replica,
                }
                for event in new
                if event.endpoint_id in known
            ]
            if rows:
                await connection.execute(insert(events), rows)
            for endpoint_id in known:
                mine = events.c.endpoint_id == endpoint_id
                newest = (
                    select(events.c.id).where(mine).order_by(events.c.id.desc()).offset(EVENTS_PER_ENDPOINT).limit(1)
                )
                await connection.execute(delete(events).where(mine, events.c.id <= newest.scalar_subquery()))

    @_whole
    async def events(self, endpoint_id: str, limit: int = EVENTS_PER_ENDPOINT) -> list[Event]:
        """The newest `limit` events, oldest first."""
        query = select(events).where(events.c.endpoint_id == endpoint_id).order_by(events.c.id.desc()).limit(limit)
        async with self._database.transaction() as connection:
            rows = (await connection.execute(query)).all()
        return [
            Event(row.endpoint_id, row.time_ms, row.kind, row.message, row.served_entity, row.replica)
            for row in reversed(rows)
        ]

    # Tokens

    @_whole
    async def add_token(self, token: TokenRecord) -> None:
        row = {
            "id": token.id,
            "sha256": token.sha256,
            "principal": token.principal,
            "comment": token.comment,
            "created_ms": token.created_ms,
            "expires_ms": token.expires_ms,
            "groups": list(token.groups),
        }
        async with self._database.transaction() as connection:
            await connection.execute(insert(tokens).values(row))

    @_whole
    async def tokens(self) -> list[TokenRecord]:
        """Oldest first, expired ones too."""
        async with self._database.transaction() as connection:
            rows = (await connection.execute(select(tokens).order_by(tokens.c.created_ms, tokens.c.id))).all()
        return [
            TokenRecord(
                row.id,
                row.sha256,
                row.principal,
                row.comment,
                row.created_ms,
                row.expires_ms,
                tuple(row.groups or ()),
            )
            for row in rows
        ]

    @_whole
    async def delete_token(self, token_id: str) -> None:
        """Raises NotFound, and InvalidState for the last token: without one nobody could come in again."""
        async with self._database.transaction() as connection:
            known = set((await connection.execute(select(tokens.c.id))).scalars())
            if token_id not in known:
                raise NotFound("There is no token with this token_id.")
            if len(known) == 1:
                raise InvalidState("This is the only token; create another before deleting it.")
            await connection.execute(delete(tokens).where(tokens.c.id == token_id))

    # Snapshot versions

    @_whole
    async def reserve_versions(self, count: int) -> tuple[int, int]:
        """Versions from `first` up to, not including, `end` are the caller's alone, also after a crash."""
        async with self._database.transaction() as connection:
            query = select(meta.c.value).where(meta.c.name == _SNAPSHOT_VERSION).with_for_update()
            stored = (await connection.execute(query)).scalar_one_or_none()
            first = int(stored) if stored is not None else 1
            value = {"value": str(first + count)}
            if stored is None:
                await connection.execute(insert(meta).values(name=_SNAPSHOT_VERSION, **value))
            else:
                await connection.execute(update(meta).where(meta.c.name == _SNAPSHOT_VERSION).values(value))
            return first, first + count


def _storable(text: str) -> str:
    """Messages quote what models print, and PostgreSQL's text holds every character but NUL."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def _refuse_during_update(endpoint: EndpointRecord) -> None:
    if endpoint.pending is not None:
        raise Conflict(f"Endpoint {endpoint.name!r} is being updated; wait until its update is over.")


def _used_versions() -> Select[Any]:
    """The configurations that endpoints point to; older versions stay in the table unread."""
    version = config_versions.c.version
    used = or_(
        version == endpoints.c.active_version,
        version == endpoints.c.pending_version,
        version == endpoints.c.failed_version,
    )
    return select(config_versions).join(endpoints, and_(config_versions.c.endpoint_id == endpoints.c.id, used))


async def _configs(connection: AsyncConnection, query: Select[Any]) -> dict[tuple[str, int], ConfigRecord]:
    rows = (await connection.execute(query)).all()
    return {
        (row.endpoint_id, row.version): ConfigRecord(
            row.version, row.creator, row.created_ms, msgspec.convert(row.definition, ConfigDefinition)
        )
        for row in rows
    }


async def _endpoint(connection: AsyncConnection, name: str) -> EndpointRecord:
    # Locked on PostgreSQL, so that two changes of one endpoint follow each other; SQLite has one writer anyway.
    row = (await connection.execute(select(endpoints).where(endpoints.c.name == name).with_for_update())).one_or_none()
    if row is None:
        raise NotFound(f"There is no endpoint named {name if len(name) <= 80 else name[:77] + '...'!r}.")
    return _record(row, await _configs(connection, _used_versions().where(endpoints.c.id == row.id)))


async def _add_config(connection: AsyncConnection, endpoint_id: str, config: ConfigRecord) -> None:
    row = {
        "endpoint_id": endpoint_id,
        "version": config.version,
        "creator": config.creator,
        "created_ms": config.created_ms,
        "definition": msgspec.to_builtins(config.definition),
    }
    await connection.execute(insert(config_versions).values(row))


def _record(row: Row[Any], configs: dict[tuple[str, int], ConfigRecord]) -> EndpointRecord:
    return EndpointRecord(
        id=row.id,
        name=row.name,
        creator=row.creator,
        created_ms=row.created_ms,
        updated_ms=row.updated_ms,
        description=row.description,
        tags=dict(row.tags),
        active=configs.get((row.id, row.active_version)),
        pending=configs.get((row.id, row.pending_version)),
        failed=configs.get((row.id, row.failed_version)),
        failure_message=row.failure_message,
        stopped=row.stopped,
        rate_limits=tuple(msgspec.convert(row.rate_limits or [], list[RateLimitView])),
    )
