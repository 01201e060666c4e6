"""Requests that wait for a replica of one served entity: first come, first served, counted in requests and bytes.

`dispatch.py` decides who may enter and when the first may go; an exchange that ends while it waits leaves by itself.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steelyard.router.exchange import Exchange


class WaitingTotals:
    """What waits in all lines of this router together."""

    __slots__ = ("body_bytes", "requests")

    def __init__(self) -> None:
        self.requests = 0
        self.body_bytes = 0


class WaitingLine:
    """One served entity's line. False when nobody waits."""

    __slots__ = ("_totals", "_waiting")

    def __init__(self, totals: WaitingTotals) -> None:
        self._totals = totals
        self._waiting: deque[Exchange] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self, exchange: Exchange, *, first: bool = False) -> None:
        """Wait at the end, or at the front when the exchange had left the line already and its replica failed."""
        if first:
            self._waiting.appendleft(exchange)
        else:
            self._waiting.append(exchange)
        self._totals.requests += 1
        self._totals.body_bytes += len(exchange.request.body)

    def next(self) -> Exchange:
        """Take the first out. Raises IndexError when nobody waits."""
        exchange = self._waiting.popleft()
        self._left(exchange)
        return exchange

    def leave(self, exchange: Exchange) -> None:
        """Take one out, wherever it stands. Nothing happens when it is not in the line."""
        if exchange in self._waiting:
            self._waiting.remove(exchange)
            self._left(exchange)

    def _left(self, exchange: Exchange) -> None:
        self._totals.requests -= 1
        self._totals.body_bytes -= len(exchange.request.body)
