"""The routing snapshot: built from what is wanted and what is ready, handed to routers that wait for it.

The reconcile loop publishes, the internal API polls. A router's poll also tells which version it has applied; that is
how the loop learns when a replica may be stopped. Nothing here touches the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from steelyard.contracts.snapshot import CostView, EndpointView, ReplicaView, ServedEntityView, Snapshot, TokenView
from steelyard.control.definitions import EntityDefinition, entity_key
from steelyard.control.records import EndpointRecord, TokenRecord
from steelyard.control.states import Deployment, EntityStatus
from steelyard.errors import Unavailable

MAX_WAIT_S = 60.0
RESERVE_WHEN_LEFT = 100

CostOf = Callable[[str, EntityDefinition], CostView | None]  # by endpoint id
TaskOf = Callable[[EndpointRecord, EntityDefinition], str | None]  # of one that has no replica now


def task_unknown(endpoint: EndpointRecord, entity: EntityDefinition) -> str | None:
    """Nobody remembers it."""
    return None


@dataclass(frozen=True, slots=True)
class Serving:
    """The ready replicas of one entity and what kind of model they said they run."""

    replicas: list[ReplicaView]
    task: str | None = None
    runtime: str | None = None


def key_of(endpoint: EndpointRecord, entity: EntityDefinition) -> str:
    return entity_key(endpoint.id, entity.name, entity.model_uri, entity.entity_version, entity.environment_vars)


def build(
    endpoints: Sequence[EndpointRecord],
    serving: Mapping[str, Serving],
    statuses: Mapping[str, Mapping[str, EntityStatus]],
    tokens: Sequence[TokenRecord],
    *,
    auth: bool,
    cost_of: CostOf = lambda endpoint_id, entity: None,
    task_of: TaskOf = task_unknown,
) -> Snapshot:
    """Version 0, for comparing. `serving` is by entity key, `statuses` by endpoint id and entity name."""
    return Snapshot(
        version=0,
        auth=auth,
        tokens=[
            TokenView(sha256=token.sha256, principal=token.principal, groups=list(token.groups)) for token in tokens
        ],
        endpoints=[_endpoint(item, serving, statuses.get(item.id, {}), cost_of, task_of) for item in endpoints],
    )


def _endpoint(
    endpoint: EndpointRecord,
    serving: Mapping[str, Serving],
    statuses: Mapping[str, EntityStatus],
    cost_of: CostOf,
    task_of: TaskOf,
) -> EndpointView:
    entities: list[ServedEntityView] = []
    if endpoint.active is not None and not endpoint.stopped:
        definition = endpoint.active.definition
        shares = {route.served_entity_name: route.traffic_percentage for route in definition.routes}
        for entity in definition.entities:
            now = serving.get(key_of(endpoint, entity), Serving([]))
            status = statuses.get(entity.name)
            entities.append(
                ServedEntityView(
                    name=entity.name,
                    traffic_percentage=shares.get(entity.name, 0),
                    task=now.task if now.replicas else task_of(endpoint, entity),
                    replicas=now.replicas,
                    recovering=status is not None and _is_coming(status),
                    cost=cost_of(endpoint.id, entity),
                )
            )
    return EndpointView(
        name=endpoint.name,
        creation_timestamp=endpoint.created_ms,
        creator=endpoint.creator,
        stopped=endpoint.stopped,
        served_entities=entities,
        rate_limits=list(endpoint.rate_limits),
    )


def _is_coming(status: EntityStatus) -> bool:
    """Replicas are on their way, or will be with the first request."""
    return status.deployment is Deployment.RECOVERING or not status.wanted


class Snapshots:
    """The published snapshot. Versions from `first` up to `end` are reserved; `routers` must acknowledge each."""

    def __init__(self, first: int, end: int, routers: int) -> None:
        self._next = first
        self._end = end
        self._routers = routers
        self._applied: dict[int, int] = {}
        self._content: Snapshot | None = None
        self._body = b""
        self._changed = asyncio.Event()
        self._closed = False
        self.version = 0
        self.on_applied: Callable[[], None] | None = None

    @property
    def needs_versions(self) -> bool:
        return self._end - self._next < RESERVE_WHEN_LEFT

    def extend(self, first: int, end: int) -> None:
        """Adds newly reserved versions."""
        self._next = max(self._next, first)
        self._end = end

    def publish(self, content: Snapshot) -> int:
        """Makes `content` the current snapshot, if it differs; returns the current version."""
        if content == self._content:
            return self.version
        self._content = content
        self.version = self._next  # may pass the reserved end while the store is down: routers matter more
        self._next += 1
        self._body = msgspec.json.encode(msgspec.structs.replace(content, version=self.version))
        self._wake()
        return self.version

    async def poll(self, after: int, router: int, wait_s: float) -> bytes:
        """The snapshot as JSON: at once when its version is not `after`, else when it changes or time is over.

        Raises Unavailable when there is none in that time.
        """
        if 0 <= router < self._routers and after <= self.version and self._applied.get(router) != after:
            self._applied[router] = after
            if self.on_applied is not None:
                self.on_applied()
        try:
            async with asyncio.timeout(min(max(wait_s, 0.0), MAX_WAIT_S)):
                while not self._closed and (self._content is None or self.version == after):
                    await self._changed.wait()
        except TimeoutError:
            pass
        if self._content is None:
            raise Unavailable("There is no snapshot yet.", retry_after_s=1)
        return self._body

    def released(self, version: int) -> bool:
        """Every router has applied this version or a later one."""
        return all(self._applied.get(index, -1) >= version for index in range(self._routers))

    def close(self) -> None:
        """Lets every waiting poll end."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
