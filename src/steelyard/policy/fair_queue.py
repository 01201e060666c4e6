"""Who waits, who goes next and who must give way: one bounded queue per served entity, counted in requests, mmu, bytes.

**Inputs** Places (tenant, priority, cost, bytes, deadline), the time, and what requests cost in the end.
**Parameters** `Bounds`; `MAX_GIVING_WAY` = 16: so many requests of one tenant may give way to one of another.
**Rules** A higher class goes first, always. Within a class tenants share by start-time fair queueing (`fair_share.py`).
The first in line goes, or nobody does: were others to overtake whenever the first fits no replica, a stream of small
requests would keep a large one out for ever, and fair shares and Retry-After would be promises about another order.
When a bound is hit, whoever comes is refused, unless enough others give way: first those of lower classes (the newest
of the tenant that has most waiting, the lowest class first), so that a full `batch` never keeps `interactive` out; then
the newest ones of the one tenant of the same class that has most waiting, as long as it keeps no less than who comes
would have (longest queue drop), so that whoever floods the queue fills only its own share of it. Who came back after a
failed replica never gives way. What cannot meet its deadline even if it starts now is dropped, not served.
**Trade-offs** Strict priority: `batch` waits for ever under a flood of `interactive`; its deadline and Retry-After say
so. Giving way costs a request that had waited, the newest, which has waited least.
**Failure modes** Requests that were admitted elsewhere (`join`) or before (`rejoin`) may take it beyond its bounds, and
so may one that is heavier than the bound of mmu, which waits when nothing else does (it could never be served else).

The router asks and acts; nothing here knows of replicas. All operations are O(log n), amortised.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Generic, TypeVar

from steelyard.policy.fair_share import FairShare, Tenant
from steelyard.policy.lazy_heap import NONE, LazyHeap
from steelyard.policy.waiting import CLASSES, Bounds, Load, Place, Standing

T = TypeVar("T")

MAX_GIVING_WAY: Final = 16
_NEVER_S: Final = float("inf")
_IN_A_LINE: Final = (Standing.WAITING, Standing.TAKEN)


class Full(StrEnum):
    """Which bound refuses."""

    REQUESTS = "requests"
    MMU = "mmu"
    BODY_BYTES = "body bytes"


class Offer(Generic[T]):
    """What became of an offer: the place waits (`full` is None), and `gave_way` do not any more."""

    __slots__ = ("full", "gave_way")

    def __init__(self, full: Full | None, gave_way: list[Place[T]]) -> None:
        self.full = full
        self.gave_way = gave_way


class FairQueue(Generic[T]):
    """False when nothing waits."""

    __slots__ = ("_bounds", "_classes", "_due", "load")

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._classes: list[FairShare[T]] = [FairShare(bounds) for _ in range(CLASSES)]
        self._due: LazyHeap[Place[T]] = LazyHeap()  # by the latest start
        self.load = Load()

    def __len__(self) -> int:
        return self.load.requests

    @property
    def bounds(self) -> Bounds:
        return self._bounds

    def set_bounds(self, bounds: Bounds) -> None:
        """For what comes from now on; nobody who waits is sent away."""
        self._bounds = bounds
        for share in self._classes:
            share.set_bounds(bounds)

    def waiting(self, priority: int) -> Load:
        """What waits in one class."""
        return self._classes[priority].load

    def ahead(self, priority: int) -> Load:
        """What waits in a class and those above it: what one more of that class may have to wait for."""
        load = Load()
        for share in self._classes[: priority + 1]:
            load = load.plus(share.load)
        return load

    # --- coming

    def offer(self, place: Place[T]) -> Offer[T]:
        """Let it wait if there is room, or room can be made."""
        gave_way: list[Place[T]] = []
        need = self._excess(place)
        if need is not None:
            plan = self._plan(place, need)
            if plan is None:
                return Offer(_full(need), gave_way)
            for victim in plan:
                self._out(victim, Standing.DISPLACED)
                gave_way.append(victim)
            self._displace_below(place.priority, need, gave_way)
        self.join(place)
        return Offer(None, gave_way)

    def join(self, place: Place[T]) -> None:
        """Let it wait whatever the bounds: it was admitted already, to an entity that is no more.

        Raises ValueError for a place that stands in a line.
        """
        if place.standing in _IN_A_LINE:
            raise ValueError(f"A place cannot join: {place.standing.value}.")
        self._classes[place.priority].join(place)
        self._note(place)

    def pass_by(self, place: Place[T]) -> None:
        """It goes at once, without having waited: its tenant is charged all the same, and it may `rejoin`."""
        if place.standing in _IN_A_LINE:
            raise ValueError(f"A place cannot pass by: {place.standing.value}.")
        self._classes[place.priority].pass_by(place)

    def rejoin(self, place: Place[T]) -> None:
        """It was taken from this queue and its replica failed: it waits before all that were behind it.

        Should it leave then, its charge stands, since some replica worked on it. Raises ValueError for any other place.
        """
        if place.standing is not Standing.TAKEN:
            raise ValueError(f"A place cannot come back: {place.standing.value}.")
        self._classes[place.priority].rejoin(place)
        self._note(place)

    # --- going

    def first(self) -> Place[T] | None:
        """Who goes next, left in its place: there may be no replica for it."""
        for share in self._classes:
            if share:
                return share.first()
        return None

    def next(self) -> Place[T]:
        """Take the first out. Raises IndexError when nothing waits."""
        place = self.first()
        if place is None:
            raise IndexError("Nothing waits.")
        self._forget(place)
        self._classes[place.priority].take(place)
        return place

    def leave(self, place: Place[T]) -> bool:
        """Take one out, wherever it stands. False, and nothing happens, when it does not wait."""
        if place.standing is not Standing.WAITING:
            return False
        self._out(place, Standing.LEFT)
        return True

    def drop_hopeless(self, now_s: float) -> list[Place[T]]:
        """Take out all that could not meet their deadlines even if they started now."""
        dropped: list[Place[T]] = []
        while (place := self._due.first()) is not None and place.latest_start_s < now_s:
            self._out(place, Standing.HOPELESS)
            dropped.append(place)
        return dropped

    def settle(self, place: Place[T], settled_mmu: int) -> None:
        """What was taken has cost `settled_mmu` in the end (0: it was never served). Once; later calls change nothing.

        A place that moves to another queue is settled here first.
        """
        if place.standing is Standing.TAKEN:
            self._classes[place.priority].settle(place, settled_mmu)

    # --- insides

    def _note(self, place: Place[T]) -> None:
        self.load.add(place.cost_mmu, place.body_bytes)
        if place.latest_start_s < _NEVER_S:
            place.due = self._due.push(place.latest_start_s, place)

    def _forget(self, place: Place[T]) -> None:
        self.load.take(place.cost_mmu, place.body_bytes)
        if place.due != NONE:
            self._due.remove(place.due)
            place.due = NONE

    def _out(self, place: Place[T], why: Standing) -> None:
        self._forget(place)
        self._classes[place.priority].leave(place, why)

    def _excess(self, place: Place[T]) -> Load | None:
        """What must give way for it; None: there is room. One that is heavier than the bound needs all mmu to itself,
        and no more."""
        load, bounds = self.load, self._bounds
        requests = load.requests + 1 - bounds.requests
        mmu = min(load.mmu, load.mmu + place.cost_mmu - bounds.mmu)
        body_bytes = load.body_bytes + place.body_bytes - bounds.body_bytes
        if requests > 0 or mmu > 0 or body_bytes > 0:
            return Load(requests, mmu, body_bytes)
        return None

    def _plan(self, place: Place[T], need: Load) -> list[Place[T]] | None:
        """Those of its own class that must give way besides lower ones. None: they may not, or it is not enough."""
        need = need.minus(Load())
        for share in self._classes[place.priority + 1 :]:
            need = need.minus(share.load).plus(share.firm)
        if not need.any_above_zero:
            return []
        share = self._classes[place.priority]
        heaviest: Tenant[T] | None = share.heaviest()
        if heaviest is None or heaviest.name == place.tenant:
            return None
        theirs = Load(heaviest.load.requests, heaviest.load.mmu, heaviest.load.body_bytes)
        ours = share.load_of(place.tenant).plus(Load(1, place.cost_mmu, place.body_bytes))
        least = share.heft(ours, place.weight)
        plan: list[Place[T]] = []
        newest = heaviest.last
        while need.any_above_zero:
            if newest is None or len(plan) == MAX_GIVING_WAY:
                return None
            plan.append(newest)
            need.take(newest.cost_mmu, newest.body_bytes)
            theirs.take(newest.cost_mmu, newest.body_bytes)
            if share.heft(theirs, heaviest.weight) < least:
                return None
            newest = newest.before
        return plan

    def _displace_below(self, priority: int, need: Load, gave_way: list[Place[T]]) -> None:
        """Let lower classes give way for what is still missing after `gave_way`."""
        for victim in gave_way:
            need.take(victim.cost_mmu, victim.body_bytes)
        for place in range(CLASSES - 1, priority, -1):
            share = self._classes[place]
            while need.any_above_zero and (tenant := share.heaviest()) is not None:
                newest = tenant.last
                assert newest is not None
                need.take(newest.cost_mmu, newest.body_bytes)
                self._out(newest, Standing.DISPLACED)
                gave_way.append(newest)


def _full(need: Load) -> Full:
    if need.requests > 0:
        return Full.REQUESTS
    return Full.MMU if need.mmu > 0 else Full.BODY_BYTES
