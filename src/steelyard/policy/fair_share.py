"""Whose turn it is among tenants that share a capacity: start-time fair queueing (Goyal, Vin and Cheng, 1996), in mmu.

**Inputs** Places with a tenant, a cost in milli-MU and the tenant's weight; later, what a request really cost.
**Parameters** `MAX_IDLE_TENANTS` = 1,024: tenants without a waiting request that are remembered.
**Guarantees** Virtual time is the start tag of what was taken last and never falls. A tenant's next request starts
where its last one finished, or now if that is past: over any time in which two tenants both wait, what each was given
per unit of its weight differs by at most the dearest request of the one and of the other (each per its weight). Who
waits is not charged: a request that leaves before its turn cost its tenant nothing. When nothing waits and all that was
taken is settled, a busy period ends, and nobody starts the next one behind another.
**Trade-offs** Within a tenant first come, first served. Shares are of what was estimated when it was a request's turn;
`settle` makes up for the difference once it is known, as the virtual token counter (Sheng et al., 2024) does.
**Failure modes** A tenant is forgotten when virtual time has passed its finish tag, which changes nothing, or when more
than `MAX_IDLE_TENANTS` are remembered, which wins it at most one request's cost. New tenants start now, hence before
those with much behind them: who may be a tenant is for authentication to bound.

`fair_queue.py` has one of these per priority class.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Generic, TypeVar

from steelyard.policy.lazy_heap import NONE, LazyHeap
from steelyard.policy.waiting import Bounds, Load, Place, Standing

T = TypeVar("T")

MAX_IDLE_TENANTS: Final = 1024


class Tenant(Generic[T]):
    """Its waiting places from `first` to `last`, without those that came back, which keep start tags of their own."""

    __slots__ = ("first", "heft", "hefts", "last", "lifted", "load", "name", "order", "start", "weight")

    def __init__(self, name: str, start: float) -> None:
        self.name = name
        self.start = start  # tag of its next place: where its last one finished
        self.lifted = start  # what it was charged at tags before this one lies behind virtual time
        self.weight = 1.0
        self.first: Place[T] | None = None
        self.last: Place[T] | None = None
        self.load = Load()
        self.order = NONE  # its number in the order of turns
        self.heft = 0.0  # no less than its share of the bounds, per weight
        self.hefts = NONE  # its number in the order of those

    def append(self, place: Place[T]) -> None:
        last = self.last
        place.before, place.after = last, None
        if last is None:
            self.first = place
        else:
            last.after = place
        self.last = place
        self.load.add(place.cost_mmu, place.body_bytes)

    def unlink(self, place: Place[T]) -> None:
        before, after = place.before, place.after
        if before is None:
            self.first = after
        else:
            before.after = after
        if after is None:
            self.last = before
        else:
            after.before = before
        place.before = place.after = None
        self.load.take(place.cost_mmu, place.body_bytes)


class FairShare(Generic[T]):
    """The tenants of one priority class. All operations are O(log n), amortised. False when nothing waits."""

    __slots__ = (
        "_bounds",
        "_furthest",
        "_hefts",
        "_idle",
        "_in_service",
        "_order",
        "_returned",
        "_tenants",
        "_turns",
        "firm",
        "load",
        "now",
    )

    def __init__(self, bounds: Bounds) -> None:
        """`bounds`: what a tenant's backlog is measured by."""
        self._bounds = bounds
        self._tenants: dict[str, Tenant[T]] = {}
        self._idle: OrderedDict[str, Tenant[T]] = (
            OrderedDict()
        )  # those of them that have no `first`; longest idle first
        self._order: LazyHeap[Tenant[T]] = LazyHeap()  # by start tag
        self._returned: LazyHeap[Place[T]] = LazyHeap()  # in the order in which they were taken first
        self._hefts: LazyHeap[Tenant[T]] = LazyHeap()  # the heaviest first
        self._furthest = 0.0  # the greatest finish tag of all that was taken
        self._turns = 0  # taken so far
        self._in_service = 0  # taken and neither settled nor back
        self.now = 0.0  # virtual time
        self.load = Load()  # all that waits
        self.firm = Load()  # of that, what came back

    def __len__(self) -> int:
        return self.load.requests

    @property
    def remembered(self) -> int:
        """Tenants that memory is held for."""
        return len(self._tenants)

    def set_bounds(self, bounds: Bounds) -> None:
        self._bounds = bounds
        for tenant in self._tenants.values():
            if tenant.first is not None:
                self._set_heft(tenant, self.heft(tenant.load, tenant.weight))

    def heft(self, load: Load, weight: float) -> float:
        """How much a tenant has waiting: its share of the bounds, per weight."""
        return self._bounds.share(load) / weight

    def load_of(self, tenant: str) -> Load:
        """What a tenant has waiting, without what came back."""
        known = self._tenants.get(tenant)
        return Load() if known is None else known.load

    # --- turns

    def join(self, place: Place[T]) -> None:
        """Wait behind the tenant's others."""
        tenant = self._present(place)
        if tenant.first is None:
            self._idle.pop(tenant.name, None)
            tenant.order = self._order.push(tenant.start, tenant)
        tenant.append(place)
        self.load.add(place.cost_mmu, place.body_bytes)
        place.standing = Standing.WAITING
        heft = self.heft(tenant.load, tenant.weight)
        if heft > tenant.heft:
            self._set_heft(tenant, 2 * heft)  # not anew with every one that joins

    def rejoin(self, place: Place[T]) -> None:
        """Wait again with the start tag it had, hence before all that were behind it, and without a second charge."""
        self._in_service -= 1
        place.returned = self._returned.push(place.turn, place)
        self.load.add(place.cost_mmu, place.body_bytes)
        self.firm.add(place.cost_mmu, place.body_bytes)
        place.standing = Standing.WAITING

    def first(self) -> Place[T] | None:
        """Whose turn is next, left in its place."""
        if self._returned:
            return self._returned.first()
        tenant = self._order.first()
        return None if tenant is None else tenant.first

    def take(self, place: Place[T]) -> None:
        """Give `place`, which must be the first, its turn: time passes to its start tag, and its tenant is charged."""
        if place.returned != NONE:
            self._take_returned(place)
        else:
            tenant = self._tenants[place.tenant]
            self._charge(tenant, place)
            self._unlink(tenant, place)
            if tenant.first is not None:
                self._reorder(tenant)
        self.now = max(self.now, place.tag)
        self._in_service += 1
        self._end(place, Standing.TAKEN)

    def pass_by(self, place: Place[T]) -> None:
        """Charge one that goes without having waited; virtual time stands."""
        tenant = self._present(place)
        self._charge(tenant, place)
        if tenant.first is not None:
            self._reorder(tenant)
        self._in_service += 1
        place.standing = Standing.TAKEN

    def leave(self, place: Place[T], why: Standing) -> None:
        """Take out one that waits, wherever it stands."""
        if place.returned != NONE:
            self._take_returned(place)
        else:
            self._unlink(self._tenants[place.tenant], place)
        self._end(place, why)

    def settle(self, place: Place[T], settled_mmu: int) -> None:
        """What was taken has cost `settled_mmu`: charge its tenant the difference, or give it back.

        A charge that virtual time has passed was forgotten when its tenant came back, and so is what was too much in
        it; what was too little counts as far as it reaches beyond now.
        """
        place.standing = Standing.SETTLED
        self._in_service -= 1
        finish = place.tag + max(0, settled_mmu) / place.weight
        tenant = self._tenants.get(place.tenant)
        if tenant is None and finish > self.now:
            tenant = self._known(place.tenant)
        if tenant is not None:
            if place.tag >= tenant.lifted:
                tenant.start += (max(0, settled_mmu) - place.cost_mmu) / place.weight
            else:
                tenant.start = max(tenant.start, finish)
            self._furthest = max(self._furthest, tenant.start)
            if tenant.first is not None:
                self._reorder(tenant)
        self._end_period()

    # --- who has most waiting

    def heaviest(self) -> Tenant[T] | None:
        """The tenant with the most waiting per weight, without what came back."""
        while True:
            tenant = self._hefts.first()
            if tenant is None:
                return None
            heft = self.heft(tenant.load, tenant.weight)
            if heft >= tenant.heft:
                return tenant
            self._set_heft(tenant, heft)  # it had more before, or room to grow; now it is exact

    # --- insides

    def _set_heft(self, tenant: Tenant[T], heft: float) -> None:
        if tenant.hefts != NONE:
            self._hefts.remove(tenant.hefts)
        tenant.heft = heft
        tenant.hefts = self._hefts.push(-heft, tenant)

    def _known(self, name: str) -> Tenant[T]:
        tenant = self._tenants.get(name)
        if tenant is None:
            tenant = self._tenants[name] = Tenant(name, self.now)
            self._set_idle(tenant)
        return tenant

    def _present(self, place: Place[T]) -> Tenant[T]:
        """The tenant of a place that comes. If it had nothing waiting it starts now, unless it finishes later."""
        tenant = self._known(place.tenant)
        tenant.weight = place.weight
        if tenant.first is None and tenant.start < self.now:
            tenant.start = tenant.lifted = self.now
        return tenant

    def _charge(self, tenant: Tenant[T], place: Place[T]) -> None:
        place.tag = tenant.start
        self._turns += 1
        place.turn = self._turns
        tenant.start += place.cost_mmu / tenant.weight
        self._furthest = max(self._furthest, tenant.start)

    def _reorder(self, tenant: Tenant[T]) -> None:
        self._order.remove(tenant.order)
        tenant.order = self._order.push(tenant.start, tenant)

    def _unlink(self, tenant: Tenant[T], place: Place[T]) -> None:
        tenant.unlink(place)
        if tenant.first is None:
            self._order.remove(tenant.order)
            self._hefts.remove(tenant.hefts)
            tenant.order = tenant.hefts = NONE
            tenant.heft = 0.0
            self._set_idle(tenant)

    def _take_returned(self, place: Place[T]) -> None:
        self._returned.remove(place.returned)
        place.returned = NONE
        self.firm.take(place.cost_mmu, place.body_bytes)

    def _end(self, place: Place[T], why: Standing) -> None:
        place.standing = why
        self.load.take(place.cost_mmu, place.body_bytes)
        self._end_period()

    def _end_period(self) -> None:
        if not self.load.requests and not self._in_service:
            self.now = max(self.now, self._furthest)
            self._tenants.clear()
            self._idle.clear()

    def _set_idle(self, tenant: Tenant[T]) -> None:
        """Remember it while that can matter, and see whether the two that have been idle longest can be forgotten."""
        idle = self._idle
        idle[tenant.name] = tenant
        for _ in range(2):
            oldest = next(iter(idle.values()))
            if oldest is tenant or (oldest.start > self.now and len(idle) <= MAX_IDLE_TENANTS):
                return
            del idle[oldest.name]
            del self._tenants[oldest.name]
