"""What waits: a request's place in a line, whose it is, what it weighs, and how much may wait at once.

Values of `fair_share.py` (whose turn it is) and `fair_queue.py` (who may wait), which keep the places in order; the
router makes a place per request and reads from its `standing` how the wait ended.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Final, Generic, TypeVar

from steelyard.policy.lazy_heap import NONE

T = TypeVar("T")

_NEVER_S: Final = float("inf")


class Priority(IntEnum):
    """The highest first. Its name in lower case is what goes over the wire."""

    PROBE = 0  # ours: is that replica alive?
    INTERACTIVE = 1  # somebody waits for the answer
    BATCH = 2  # whatever the others leave


CLASSES: Final = len(Priority)


class Standing(StrEnum):
    """Where a request stands; what ended its wait reads as a reason."""

    NEW = "it has not joined"
    WAITING = "it waits"
    TAKEN = "it was its turn"
    SETTLED = "it was served"
    LEFT = "it left"
    DISPLACED = "it gave way to requests of a higher priority, or of others who have less waiting"
    HOPELESS = "its deadline could not be met any more"


class Place(Generic[T]):
    """One item's place in a line, and all that a line needs to know of it. The line itself writes what stands below.

    It can join another queue once it is out of one.
    """

    __slots__ = (
        "after",
        "before",
        "body_bytes",
        "cost_mmu",
        "due",
        "item",
        "latest_start_s",
        "priority",
        "returned",
        "standing",
        "tag",
        "tenant",
        "turn",
        "weight",
    )

    def __init__(  # noqa: PLR0917 - positional on the hot path
        self,
        item: T,
        tenant: str,
        priority: int,
        cost_mmu: int,
        body_bytes: int = 0,
        latest_start_s: float = _NEVER_S,
        weight: float = 1.0,
    ) -> None:
        """`latest_start_s`: its deadline less the time that serving it takes; `weight`: of the tenant.

        Raises ValueError for a weight that is not above zero.
        """
        if not weight > 0:
            raise ValueError(f"The weight of tenant {tenant[:100]!r} is {weight}; it must be above zero.")
        self.item = item
        self.tenant = tenant
        self.priority = priority
        self.cost_mmu = max(1, cost_mmu)  # nothing is free, or it would never end its tenant's turn
        self.body_bytes = body_bytes
        self.latest_start_s = latest_start_s
        self.weight = weight
        self.standing = Standing.NEW
        self.tag = 0.0  # start tag, once it was taken
        self.turn = 0  # how many were taken before it and with it
        self.returned = NONE  # its number among those that came back
        self.due = NONE  # its number among the deadlines
        self.before: Place[T] | None = None  # of the same tenant
        self.after: Place[T] | None = None


class Load:
    """How much waits."""

    __slots__ = ("body_bytes", "mmu", "requests")

    def __init__(self, requests: int = 0, mmu: int = 0, body_bytes: int = 0) -> None:
        self.requests = requests
        self.mmu = mmu
        self.body_bytes = body_bytes

    def __repr__(self) -> str:
        return f"Load(requests={self.requests}, mmu={self.mmu}, body_bytes={self.body_bytes})"

    def add(self, cost_mmu: int, body_bytes: int) -> None:
        self.requests += 1
        self.mmu += cost_mmu
        self.body_bytes += body_bytes

    def take(self, cost_mmu: int, body_bytes: int) -> None:
        self.requests -= 1
        self.mmu -= cost_mmu
        self.body_bytes -= body_bytes

    def plus(self, other: Load) -> Load:
        return Load(self.requests + other.requests, self.mmu + other.mmu, self.body_bytes + other.body_bytes)

    def minus(self, other: Load) -> Load:
        return Load(self.requests - other.requests, self.mmu - other.mmu, self.body_bytes - other.body_bytes)

    @property
    def any_above_zero(self) -> bool:
        return self.requests > 0 or self.mmu > 0 or self.body_bytes > 0


class Bounds:
    """How much may wait at once."""

    __slots__ = ("body_bytes", "mmu", "requests")

    def __init__(self, requests: int, mmu: int, body_bytes: int) -> None:
        """Raises ValueError for a bound below 1."""
        if min(requests, mmu, body_bytes) < 1:
            raise ValueError(f"Bounds of {requests} requests, {mmu} mmu and {body_bytes} bytes let nothing wait.")
        self.requests = requests
        self.mmu = mmu
        self.body_bytes = body_bytes

    def share(self, load: Load) -> float:
        """The largest of the shares that `load` has of each bound (Ghodsi et al., 2011, dominant resource)."""
        return max(load.requests / self.requests, load.mmu / self.mmu, load.body_bytes / self.body_bytes)
