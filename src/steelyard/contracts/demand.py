"""What a router says of the demand it sees, per served entity: `GET /demand` on its own socket.

Control asks each router once a second and decides from the sums how many replicas there should be. Totals only grow
while the router lives and knows the entity, so that a report that got lost costs nothing.
"""

from __future__ import annotations

import msgspec


class EntityDemand(msgspec.Struct, frozen=True, kw_only=True):
    """`mmu` are milli model units, as charged when a request was sent. A request is weighed once it is sent."""

    endpoint: str
    served_entity: str
    running: int  # requests at a replica, those included that have left the routing
    running_mmu: int
    queued: int  # wait in this router
    queued_mmu: int
    arrived_total: int  # that were let in by their limits, whether or not there was room for them
    settled_total: int  # that a replica has served
    settled_mmu_total: int  # what these were charged
    busy_s_total: float  # how long these were at a replica, all together
    busy_mmu_s_total: float  # the same, each multiplied by what it was charged


class DemandReport(msgspec.Struct, frozen=True, kw_only=True):
    entities: list[EntityDemand] = []
    outstanding_mmu: dict[str, int] = {}  # by replica: charged and not yet done
