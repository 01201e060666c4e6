"""Requests that wait for a replica of one served entity: the router's side of `policy.fair_queue`.

`dispatch.py` decides who may enter and when the first may go; an exchange that ends while it waits leaves by itself.
A tenant is a principal; what it takes is what its requests weigh, corrected when they end.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from steelyard.policy.fair_queue import FairQueue
from steelyard.policy.waiting import Bounds, Place, Standing

if TYPE_CHECKING:
    from steelyard.router.exchange import Exchange

_NO_BOUND = sys.maxsize


class WaitingTotals:
    """What waits in all lines of this router together."""

    __slots__ = ("body_bytes", "requests")

    def __init__(self) -> None:
        self.requests = 0
        self.body_bytes = 0


class WaitingLine:
    """One served entity's line. False when nobody waits."""

    __slots__ = ("_limit", "_queue", "_totals", "busy_since_s")

    def __init__(self, totals: WaitingTotals) -> None:
        self._totals = totals
        self._limit = _NO_BOUND
        self.busy_since_s = 0.0  # since when somebody waits, if anybody does
        self._queue: FairQueue[Exchange] = FairQueue(Bounds(_NO_BOUND, _NO_BOUND, _NO_BOUND))

    def __len__(self) -> int:
        return len(self._queue)

    def offer(self, exchange: Exchange, limit: int) -> list[Exchange] | None:
        """Wait if not more than `limit` do then. The result is who had to give way; None: there is no room."""
        queue = self._queue
        if limit != self._limit:
            self._limit = limit
            queue.set_bounds(Bounds(limit, _NO_BOUND, _NO_BOUND))
        place = _place(exchange)
        offer = queue.offer(place)
        if offer.full is not None:
            return None
        self._entered(exchange, place)
        for gone in offer.gave_way:
            self._left(gone.item)
        return [gone.item for gone in offer.gave_way]

    def join(self, exchange: Exchange, *, first: bool = False) -> None:
        """Wait whatever the limit, at the end of its principal's; `first`: it was sent, and its replica failed."""
        place = exchange.place
        if not first:
            place = _place(exchange)
            self._queue.join(place)
        else:
            if place is None:  # it had not waited before it was sent
                place = _place(exchange)
                self._queue.pass_by(place)
            self._queue.rejoin(place)
        self._entered(exchange, place)

    def first(self) -> Exchange:
        """Who goes next, left in its place. Raises IndexError when nobody waits."""
        place = self._queue.first()
        if place is None:
            raise IndexError("Nobody waits.")
        return place.item

    def next(self) -> Exchange:
        """Take the first out: it goes. Raises IndexError when nobody waits."""
        exchange = self._queue.next().item
        self._left(exchange)
        return exchange

    def send_away(self) -> Exchange:
        """Take the first out though it does not go. Raises IndexError when nobody waits."""
        exchange = self.first()
        self.leave(exchange)
        return exchange

    def leave(self, exchange: Exchange) -> None:
        """Have no more to do with it, wherever it stands: it ended, or it moves to another line."""
        place = exchange.place
        if place is None:
            return
        exchange.place = None
        if place.standing is Standing.TAKEN:
            self._queue.settle(place, exchange.settled_mmu)
        elif self._queue.leave(place):
            self._left(exchange)

    def ahead_mmu(self, priority: int) -> int:
        """What waits in a class and those above it."""
        return self._queue.ahead(priority).mmu

    @property
    def waiting_mmu(self) -> int:
        return self._queue.load.mmu

    def _entered(self, exchange: Exchange, place: Place[Exchange]) -> None:
        if len(self._queue) == 1:
            self.busy_since_s = time.monotonic()
        exchange.place = place
        self._totals.requests += 1
        self._totals.body_bytes += len(exchange.request.body)

    def _left(self, exchange: Exchange) -> None:
        self._totals.requests -= 1
        self._totals.body_bytes -= len(exchange.request.body)


def _place(exchange: Exchange) -> Place[Exchange]:
    return Place(exchange, exchange.principal, exchange.priority, exchange.weight.ask.mmu, len(exchange.request.body))
