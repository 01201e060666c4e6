"""Between how many replicas an entity may have: what its user gave, and what the machine can hold.

The autoscaler asks before each decision. Pure: how much memory there is, and how much a replica takes, is passed in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from steelyard.control.definitions import EntityDefinition
from steelyard.policy.horizontal import Limits

REPLICAS_PER_CORE = 16  # of one entity: beyond, processes that only wait cost more than they bring
RESERVE = 0.1  # of the memory, kept free


@dataclass(frozen=True, slots=True)
class Machine:
    """What there is to grow into. `replica_bytes` None: no replica was measured yet."""

    cores: int
    memory_bytes: int
    available_bytes: int
    replica_bytes: int | None = None

    def room(self, starting: int) -> float:
        """So many more replicas fit, beside those that start and have not taken their memory yet."""
        if not self.replica_bytes:
            return math.inf
        free = self.available_bytes - RESERVE * self.memory_bytes - starting * self.replica_bytes
        return max(0, math.floor(free / self.replica_bytes))


def limits_of(
    entity: EntityDefinition,
    concurrency: int,
    machine: Machine,
    *,
    ready: int,
    starting: int,
    wanted: int,
    idle_timeout_s: float,
) -> Limits:
    """`concurrency`: requests that one replica holds. Of what the user gave the minimum is met, rounded up; the maximum
    is kept, but for one replica. A machine that is full stops growth, and takes away nothing that is `wanted` already.
    """
    least = 0 if entity.scale_to_zero_enabled else max(1, math.ceil(entity.wanted_concurrency / concurrency))
    most = max(1, least, entity.most_concurrency // concurrency)
    holds = min(ready + starting + machine.room(starting), max(1, machine.cores) * REPLICAS_PER_CORE)
    most = int(min(most, max(1, least, wanted, holds)))
    return Limits(least, most, idle_timeout_s=idle_timeout_s if least == 0 else None)
