"""What users can ask of control, free of HTTP: each call checks, changes the store, wakes the loop, and tells.

The API's routes call these. Every call may raise `Unavailable` when the store fails; nothing here touches replicas.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import time
import uuid
from collections.abc import Mapping, Sequence

from steelyard.contracts.replica import ReplicaSpec
from steelyard.contracts.snapshot import ReplicaView
from steelyard.control.board import Board
from steelyard.control.definitions import (
    ConfigDefinition,
    EntityDefinition,
    RouteDefinition,
    build_config,
    build_entity,
    check_name,
)
from steelyard.control.events import Events
from steelyard.control.gateway import check_gateway, check_principal
from steelyard.control.reconcile import Reconciler
from steelyard.control.records import EndpointRecord, Event, TokenRecord
from steelyard.control.snapshots import Serving, key_of
from steelyard.control.states import Phase
from steelyard.control.store import Store
from steelyard.errors import InvalidParameter, InvalidState, NotFound
from steelyard.observe.logs import get_logger
from steelyard.settings import Settings

ADMIN = "admin"
TOKEN_PREFIX = "sy-"  # noqa: S105 (a prefix by which leaked tokens are found, not a secret)


class Operations:
    def __init__(self, settings: Settings, store: Store, reconciler: Reconciler, events: Events) -> None:
        self.settings = settings
        self._store = store
        self._reconciler = reconciler
        self._events = events
        self._first_token = asyncio.Lock()
        self._log = get_logger()

    # Endpoints

    async def create(
        self,
        name: str,
        config: Mapping[str, object],
        *,
        tags: Mapping[str, str],
        description: str,
        principal: str,
        gateway: Mapping[str, object] | None = None,
    ) -> EndpointRecord:
        """Raises InvalidParameter, AlreadyExists."""
        check_name(name)
        definition = await asyncio.to_thread(_definition, config, "config", None)
        now_ms = _now_ms()
        endpoint = EndpointRecord(
            id=uuid.uuid4().hex,
            name=name,
            creator=principal,
            created_ms=now_ms,
            updated_ms=now_ms,
            description=description,
            tags=dict(tags),
            rate_limits=tuple(check_gateway(gateway or {}, "ai_gateway")),
        )
        created = await self._store.create_endpoint(endpoint, definition)
        self._changed(created, "endpoint_created", f"Created by {principal}.")
        return created

    async def update(self, name: str, config: Mapping[str, object], *, principal: str) -> EndpointRecord:
        """Raises NotFound, InvalidParameter, Conflict, InvalidState."""
        endpoint = await self._store.endpoint(name)
        base = endpoint.active or endpoint.pending or endpoint.failed
        current = base.definition.entities if base else None
        definition = await asyncio.to_thread(_definition, config, "", current)
        updated = await self._store.begin_update(name, definition, principal=principal, now_ms=_now_ms())
        assert updated.pending is not None
        message = f"Configuration {updated.pending.version} by {principal} is being deployed."
        self._changed(updated, "update_started", message)
        return updated

    async def stop(self, name: str, *, principal: str) -> EndpointRecord:
        """Raises NotFound, Conflict, InvalidState."""
        stopped = await self._store.stop_endpoint(name, _now_ms())
        self._changed(stopped, "endpoint_stopped", f"Stopped by {principal}.")
        return stopped

    async def start(self, name: str, *, principal: str) -> EndpointRecord:
        """Starts a stopped endpoint with a new version of its configuration. Raises NotFound, InvalidState."""
        started = await self._store.begin_update(name, None, principal=principal, now_ms=_now_ms(), start=True)
        self._changed(started, "endpoint_started", f"Started by {principal}.")
        return started

    async def delete(self, name: str, *, principal: str) -> None:
        """Raises NotFound."""
        endpoint = await self._store.delete_endpoint(name)
        self._log.info("endpoint_deleted", endpoint=endpoint.name, principal=principal)
        self._reconciler.wake()

    async def endpoint(self, name: str) -> EndpointRecord:
        """Raises NotFound."""
        return await self._store.endpoint(name)

    async def endpoints(self) -> list[EndpointRecord]:
        return await self._store.all_endpoints()

    async def change_tags(self, name: str, add: Mapping[str, str], remove: Sequence[str]) -> dict[str, str]:
        """Raises NotFound."""
        return await self._store.change_tags(name, dict(add), remove, _now_ms())

    async def set_gateway(self, name: str, given: Mapping[str, object], *, principal: str) -> EndpointRecord:
        """Raises NotFound, InvalidParameter."""
        limits = check_gateway(given)
        changed = await self._store.set_rate_limits(name, limits, _now_ms())
        self._changed(changed, "rate_limits_changed", f"{principal} set {len(limits) or 'no'} rate limits.")
        return changed

    async def events_of(self, name: str) -> list[Event]:
        """Oldest first. Raises NotFound."""
        endpoint = await self._store.endpoint(name)
        await self._events.flush()
        return await self._store.events(endpoint.id)

    def board(self, endpoint: EndpointRecord) -> Board:
        return self._reconciler.boards.get(endpoint.id, Board())

    def serving(self) -> dict[str, Serving]:
        return self._reconciler.fleet.serving()

    def running(self) -> list[ReplicaSpec]:
        """Replicas that can be asked something."""
        return [item.spec for item in self._reconciler.fleet if item.phase is not Phase.DEAD]

    async def calibratable(
        self, name: str, served_entity: str | None
    ) -> tuple[EndpointRecord, EntityDefinition, ReplicaView]:
        """What a calibration of the entity (None: of the one with most traffic) would load. Raises NotFound,
        InvalidState where no replica of it is ready."""
        endpoint = await self._store.endpoint(name)
        definition = endpoint.active.definition if endpoint.active is not None and not endpoint.stopped else None
        if definition is None:
            raise InvalidState(f"Endpoint {name!r} serves nothing now.")
        if served_entity is None:
            shares = {route.served_entity_name: route.traffic_percentage for route in definition.routes}
            served_entity = max(definition.entities, key=lambda entity: shares.get(entity.name, 0)).name
        entity = next((entity for entity in definition.entities if entity.name == served_entity), None)
        if entity is None:
            raise NotFound(f"Endpoint {name!r} has no served entity {served_entity!r}.")
        serving = self.serving().get(key_of(endpoint, entity))
        if serving is None or not serving.replicas:
            raise InvalidState(f"No replica of {served_entity!r} is ready.")
        return endpoint, entity, serving.replicas[0]

    def pid_of(self, replica_id: str) -> int | None:
        """The replica's process, if it is on this machine."""
        tracked = self._reconciler.fleet.get(replica_id)
        return None if tracked is None else tracked.pid

    # Tokens

    async def create_token(
        self, *, principal: str, comment: str, lifetime_s: int | None = None, groups: Sequence[str] = ()
    ) -> tuple[str, TokenRecord]:
        """The token in plain, told this once, and its record. Raises InvalidParameter for a name that is none."""
        for name, field in ((principal, "application_id"), *((group, "groups") for group in groups)):
            check_principal(name, field)
        plain = TOKEN_PREFIX + secrets.token_urlsafe(32)
        now_ms = _now_ms()
        token = TokenRecord(
            id=uuid.uuid4().hex,
            sha256=hashlib.sha256(plain.encode()).hexdigest(),
            principal=principal,
            comment=comment,
            created_ms=now_ms,
            expires_ms=None if lifetime_s is None else now_ms + lifetime_s * 1000,
            groups=tuple(dict.fromkeys(groups)),
        )
        await self._store.add_token(token)
        self._log.info("token_created", token_id=token.id, principal=principal)
        self._reconciler.wake()
        return plain, token

    async def first_token(self, known_sha256: str) -> str | None:
        """A new token for the administrator, unless the one with this hash opens the platform already."""
        async with self._first_token:
            now_ms = _now_ms()
            if any(token.sha256 == known_sha256 and token.valid_at(now_ms) for token in await self._store.tokens()):
                return None
            plain, _ = await self.create_token(principal=ADMIN, comment="created at start")
            return plain

    async def all_tokens(self) -> list[TokenRecord]:
        return await self._store.tokens()

    async def tokens(self, principal: str) -> list[TokenRecord]:
        return [token for token in await self._store.tokens() if token.principal == principal]

    async def delete_token(self, token_id: str, *, principal: str | None) -> None:
        """`principal`: whose it must be; None: anybody's. Raises NotFound, InvalidState for the last one."""
        if principal is not None and token_id not in {token.id for token in await self.tokens(principal)}:
            raise NotFound("There is no token with this token_id.")
        await self._store.delete_token(token_id)
        self._log.info("token_deleted", token_id=token_id)
        self._reconciler.wake()

    def _changed(self, endpoint: EndpointRecord, kind: str, message: str) -> None:
        self._log.info(kind, endpoint=endpoint.name, message=message)
        self._events.record(Event(endpoint.id, _now_ms(), kind, message))
        self._reconciler.wake()


def _definition(
    config: Mapping[str, object], field: str, current: Sequence[EntityDefinition] | None
) -> ConfigDefinition:
    """`config` is a checked request body. Without entities, `current` ones stay. Looks at the disk."""
    prefix = f"{field}." if field else ""
    entities = _entities(config, prefix)
    if entities is None:
        if current is None:
            raise InvalidParameter(f"{prefix}served_entities is missing.", param=f"{prefix}served_entities")
        entities = list(current)
    return build_config(entities, _routes(config, prefix), field)


def _entities(config: Mapping[str, object], prefix: str) -> list[EntityDefinition] | None:
    given, models = config.get("served_entities"), config.get("served_models")
    if given is not None and models is not None:
        raise InvalidParameter(
            f"{prefix}served_models is the old name of served_entities; give one of them.",
            param=f"{prefix}served_models",
        )
    if given is not None:
        assert isinstance(given, list)
        return [build_entity(item, f"{prefix}served_entities[{n}]", _existing_path) for n, item in enumerate(given)]
    if models is not None:
        assert isinstance(models, list)
        return [
            build_entity(
                {**item, "entity_name": item["model_name"], "entity_version": item.get("model_version")},
                f"{prefix}served_models[{n}]",
                _existing_path,
            )
            for n, item in enumerate(models)
        ]
    return None


def _routes(config: Mapping[str, object], prefix: str) -> list[RouteDefinition] | None:
    traffic = config.get("traffic_config")
    routes = traffic.get("routes") if isinstance(traffic, Mapping) else None
    if routes is None:
        return None
    found: list[RouteDefinition] = []
    for n, route in enumerate(routes):
        field = f"{prefix}traffic_config.routes[{n}]"
        names = {route.get("served_entity_name"), route.get("served_model_name")} - {None}
        if len(names) != 1:
            raise InvalidParameter(f"{field}.served_entity_name must name one served entity.", param=field)
        found.append(RouteDefinition(served_entity_name=names.pop(), traffic_percentage=route["traffic_percentage"]))
    return found


def _existing_path(name: str) -> str | None:
    path = os.path.expanduser(name)
    try:
        return os.path.abspath(path) if os.path.exists(path) else None
    except (OSError, ValueError):
        return None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
