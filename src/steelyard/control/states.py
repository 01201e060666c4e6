"""The values that planning works with: what is wanted, what runs, what was tried, and what to do about it.

`plan.py` turns the first three into the last; the reconcile loop makes the former and carries out the latter. All
times are seconds of one monotonic clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Phase(Enum):
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"  # runs, but no new request shall reach it
    STOPPING = "stopping"  # was told to end
    DEAD = "dead"


class Deployment(Enum):
    """State of a served entity, in the words of the API (there with the prefix DEPLOYMENT_)."""

    CREATING = "CREATING"
    READY = "READY"
    RECOVERING = "RECOVERING"
    FAILED = "FAILED"
    ABORTED = "ABORTED"


@dataclass(frozen=True, slots=True)
class Entity:
    """`replicas`: how many the autoscaler wants; None: as many as hold `wanted_concurrency`."""

    key: str
    name: str
    wanted_concurrency: int = 1
    replicas: int | None = None


@dataclass(frozen=True, slots=True)
class Config:
    version: int
    entities: tuple[Entity, ...]


@dataclass(frozen=True, slots=True)
class Desired:
    """Nothing active and nothing pending: the endpoint is deleted."""

    active: Config | None = None
    pending: Config | None = None
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class Replica:
    """One observed replica. `phase_since_s` is when it entered `phase`; of a dead one, `before` is the phase it had."""

    id: str
    key: str
    phase: Phase
    phase_since_s: float
    before: Phase = Phase.STARTING
    detail: str = ""
    max_concurrency: int | None = None  # None: not known, since it was never ready
    served: bool = False  # some router may still send requests to it
    killed: bool = False
    drain_timeout_s: float = 30.0
    failure: str | None = None  # of a dead one: why it could not start, in its own words
    death: str = "died"  # of a dead one: how, and its last lines
    outstanding_mmu: int = 0  # work that routers have charged to it; known where an autoscaler asks them


@dataclass(frozen=True, slots=True)
class Attempts:
    """Deaths in a row of one entity's replicas, and when the next start is allowed."""

    deaths: int = 0
    not_before_s: float = -math.inf
    last_death_s: float = -math.inf
    hopeless: bool = False
    message: str = ""


@dataclass(frozen=True, slots=True)
class Memory:
    """What one round hands to the next."""

    pending_version: int | None = None
    attempts: Mapping[str, Attempts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Start:
    entity: Entity
    version: int
    reason: str


@dataclass(frozen=True, slots=True)
class Drain:
    """Take it out of the snapshot."""

    replica_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Terminate:
    replica_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Kill:
    replica_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Forget:
    """It is dead: put its folder away."""

    replica_id: str
    reason: str
    expected: bool


@dataclass(frozen=True, slots=True)
class Promote:
    version: int
    reason: str


@dataclass(frozen=True, slots=True)
class FailUpdate:
    version: int
    message: str


Action = Start | Drain | Terminate | Kill | Forget | Promote | FailUpdate


@dataclass(frozen=True, slots=True)
class EntityStatus:
    """`ready` of `wanted` replicas are ready."""

    deployment: Deployment
    message: str = ""
    ready: int = 0
    wanted: int = 1


@dataclass(frozen=True, slots=True)
class Plan:
    """`active` and `pending` hold each entity's status by its name. `wake_at_s`: worth another round by then."""

    actions: tuple[Action, ...]
    memory: Memory
    active: Mapping[str, EntityStatus]
    pending: Mapping[str, EntityStatus]
    wake_at_s: float | None
