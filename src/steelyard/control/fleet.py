"""The replicas as control knows them: what the substrate found, what they said, and what they were told.

Owned by the reconcile loop, which feeds it and reads it; the API reads it. It does no I/O and starts nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from steelyard.contracts.replica import ReplicaSpec, ReplicaStatus
from steelyard.contracts.snapshot import ReplicaView, Snapshot
from steelyard.control.definitions import entity_key
from steelyard.control.snapshots import Serving
from steelyard.control.states import Phase, Replica
from steelyard.substrate import FoundReplica


@dataclass(slots=True)
class Tracked:
    """One replica. `left_at` is the first snapshot version without it, once it has been in one. `started_s` is None
    where an earlier control started it."""

    spec: ReplicaSpec
    key: str
    pid: int | None
    phase: Phase
    phase_since_s: float
    before: Phase = Phase.STARTING
    detail: str = ""
    status: ReplicaStatus | None = None
    listed: bool = False
    left_at: int | None = None
    killed: bool = False
    failure: str | None = None
    death: str = ""
    started_s: float | None = None
    outstanding_mmu: int = 0

    def enter(self, phase: Phase, now_s: float) -> None:
        if phase is not self.phase:
            self.before, self.phase, self.phase_since_s = self.phase, phase, now_s


def key_of_spec(spec: ReplicaSpec) -> str:
    return entity_key(spec.endpoint_id, spec.served_entity, spec.model_uri, spec.model_version, spec.environment_vars)


class Fleet:
    def __init__(self) -> None:
        self._replicas: dict[str, Tracked] = {}

    def __iter__(self) -> Iterator[Tracked]:
        return iter(list(self._replicas.values()))

    def get(self, replica_id: str) -> Tracked | None:
        return self._replicas.get(replica_id)

    def started(self, spec: ReplicaSpec, pid: int, now_s: float) -> Tracked:
        tracked = Tracked(spec, key_of_spec(spec), pid, Phase.STARTING, now_s, started_s=now_s)
        self._replicas[spec.id] = tracked
        return tracked

    def forget(self, replica_id: str) -> None:
        self._replicas.pop(replica_id, None)

    def update(self, found: Sequence[FoundReplica], now_s: float) -> list[Tracked]:
        """Takes in what the substrate sees; returns those that are new to us, left by an earlier control."""
        adopted: list[Tracked] = []
        for item in found:
            tracked = self._replicas.get(item.spec.id)
            if tracked is None:
                tracked = _adopt(item, now_s)
                self._replicas[item.spec.id] = tracked
                adopted.append(tracked)
            if not item.alive:
                tracked.enter(Phase.DEAD, now_s)
                tracked.failure, tracked.death = item.failure, item.death
        seen = {item.spec.id for item in found}
        for tracked in self._replicas.values():
            if tracked.spec.id not in seen and tracked.phase is not Phase.DEAD:
                tracked.enter(Phase.DEAD, now_s)  # its folder is gone: nothing can be known of it
                tracked.death = "lost its folder"
        return adopted

    def heard(self, replica_id: str, status: ReplicaStatus, now_s: float) -> bool:
        """Takes in what a replica says of itself; True when its phase or the load that it takes changed."""
        tracked = self._replicas.get(replica_id)
        if tracked is None:
            return False
        before, limit = tracked.phase, tracked.status.max_concurrency if tracked.status else None
        tracked.detail = status.detail
        if before is Phase.STARTING and status.building:
            tracked.phase_since_s = now_s  # a build limits itself; the time to start counts from its end
        if before in (Phase.STARTING, Phase.READY):
            if status.state == "ready":
                tracked.status = status
                tracked.enter(Phase.READY, now_s)
            elif status.state == "draining":
                tracked.enter(Phase.DRAINING, now_s)  # somebody else told it to end
        return tracked.phase is not before or (limit is not None and limit != status.max_concurrency)

    def note_load(self, outstanding_mmu: Mapping[str, int]) -> None:
        """By replica: the work that routers have charged to it and that is not done."""
        for tracked in self._replicas.values():
            tracked.outstanding_mmu = outstanding_mmu.get(tracked.spec.id, 0)

    def mark_listed(self, snapshot: Snapshot, version: int) -> None:
        """Notes who is in the published snapshot, and since when the others are not."""
        present = {
            replica.id
            for endpoint in snapshot.endpoints
            for entity in endpoint.served_entities
            for replica in entity.replicas
        }
        for tracked in self._replicas.values():
            if tracked.spec.id in present:
                tracked.listed, tracked.left_at = True, None
            elif tracked.listed and tracked.left_at is None:
                tracked.left_at = version

    def of_endpoint(self, endpoint_id: str, released: Callable[[int], bool]) -> list[Replica]:
        """For planning; `released(version)` says whether every router has applied that snapshot."""
        return [
            Replica(
                id=item.spec.id,
                key=item.key,
                phase=item.phase,
                phase_since_s=item.phase_since_s,
                before=item.before,
                detail=item.detail,
                max_concurrency=item.status.max_concurrency if item.status else None,
                served=item.listed and (item.left_at is None or not released(item.left_at)),
                killed=item.killed,
                drain_timeout_s=item.spec.drain_timeout_s,
                failure=item.failure,
                death=item.death,
                outstanding_mmu=item.outstanding_mmu,
            )
            for item in self._replicas.values()
            if item.spec.endpoint_id == endpoint_id
        ]

    def endpoint_ids(self) -> set[str]:
        return {item.spec.endpoint_id for item in self._replicas.values()}

    def serving(self) -> dict[str, Serving]:
        """Ready replicas by entity key."""
        found: dict[str, Serving] = {}
        for item in sorted(self._replicas.values(), key=lambda item: item.spec.id):
            if item.phase is not Phase.READY or item.status is None:
                continue
            view = ReplicaView(
                id=item.spec.id, address=item.spec.address, max_concurrency=max(1, item.status.max_concurrency)
            )
            earlier = found.get(item.key, Serving([]))
            found[item.key] = Serving([*earlier.replicas, view], task=item.status.task, runtime=item.status.runtime)
        return found


def _adopt(item: FoundReplica, now_s: float) -> Tracked:
    """One that was ready keeps its traffic; whatever it says next corrects that."""
    tracked = Tracked(item.spec, key_of_spec(item.spec), item.pid, Phase.STARTING, now_s)
    if item.ready is not None:
        tracked.status = item.ready
        tracked.listed = True  # routers may know it from the control before us
        tracked.enter(Phase.READY, now_s)
    return tracked
