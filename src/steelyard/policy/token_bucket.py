"""A bucket of tokens that come back one minute after they were taken: no minute sees more than the limit.

**Inputs** Amounts (whole numbers: requests, tokens, mmu) and the time.
**Parameters** `WINDOW_S` = 60, in which at most `limit` is taken, or this router's `share` of it where several share
it; `SLOT_S` = 0.5, by which times are rounded up.
**Trade-offs** A bucket that is refilled continuously and holds a minute's worth lets twice the limit through in a
minute (a full bucket, then the refill); one that holds less forbids bursts that the limit allows. Here all of the limit
may be taken at once, and it then comes back at once, a minute later. Rounding costs `SLOT_S` / `WINDOW_S` = 0.8 % of
the limit under demand that never ends. A bucket holds at most 121 numbers.
**Failure modes** More may be charged than there is (`take` does not ask): the bucket is then in debt, and has no room
until that has come back. When the clock jumps back by less than a minute, time stands still until it has caught up; by
more, all that was taken counts as taken now. Neither ever makes room.

`rate_limits.py` holds one per limit and who is limited, `rate_leases.py` shares one among several routers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

WINDOW_S: Final = 60.0
SLOT_S: Final = 0.5
REBALANCED_S: Final = 1.0
_KEPT_SLOTS: Final = int(WINDOW_S / SLOT_S) + 1  # with it a slot is over when its last moment lies a window back


class Bucket:
    """`limit` may be changed at any time, and so may `share`, `elsewhere` and `opener`, by who hands out shares."""

    __slots__ = (
        "_by_slot",
        "_slot",
        "asked_total",
        "elsewhere",
        "limit",
        "opener",
        "refused",
        "share",
        "taken",
        "taken_total",
    )

    def __init__(self, limit: int) -> None:
        self._by_slot: dict[int, int] = {}  # taken, the oldest slot first
        self._slot = 0  # the newest one seen
        self.limit = limit
        self.share: int | None = None  # of the limit, that may be taken here; None: all of it
        self.opener: Callable[[Bucket], None] | None = None  # is asked for a larger share when there is no room
        self.elsewhere = 0  # what others seem to have left of theirs
        self.taken = 0  # in the last minute, as of the last call with the time
        self.taken_total = 0  # ever, what was given back included
        self.asked_total = 0  # ever, what was refused included
        self.refused = 0  # the largest amount that was, since somebody set it to 0

    def room(self, now_s: float) -> int:
        """What may be taken now; negative in debt."""
        self._pass(now_s)
        share = self.share
        return (self.limit if share is None or share > self.limit else share) - self.taken

    def ask(self, amount: int, now_s: float) -> bool:
        """Whether there is room for `amount`; that it was wanted is noted."""
        self.asked_total += amount
        if self.room(now_s) >= amount:
            return True
        opener = self.opener
        if opener is not None:
            opener(self)
            if self.room(now_s) >= amount:
                return True
        self.refused = max(self.refused, amount)
        return False

    def take(self, amount: int, now_s: float) -> int:
        """Take `amount`, whether there is room or not. The result is the slot to give back to."""
        self._pass(now_s)
        slot = self._slot
        if amount > 0:
            self._by_slot[slot] = self._by_slot.get(slot, 0) + amount
            self.taken += amount
            self.taken_total += amount
        return slot

    def give_back(self, amount: int, slot: int) -> None:
        """Undo so much of what was taken in `slot`, unless it has come back by itself."""
        there = self._by_slot.get(slot, 0)
        amount = min(amount, there)
        if amount <= 0:
            return
        if amount == there:
            del self._by_slot[slot]
        else:
            self._by_slot[slot] = there - amount
        self.taken -= amount

    def give_back_oldest(self, amount: int) -> None:
        """Undo so much of what was taken first."""
        while amount > 0 and self._by_slot:
            slot = next(iter(self._by_slot))
            step = min(amount, self._by_slot[slot])
            self.give_back(step, slot)
            amount -= step

    def room_in_s(self, amount: int, now_s: float) -> float | None:
        """How long until there is room for `amount`; None: there never is.

        Where others share the limit, their part of it comes here within `REBALANCED_S`, as far as they do not need it.
        """
        missing = amount - self.room(now_s)
        if missing <= 0:
            return 0.0
        if missing <= self.elsewhere:
            return REBALANCED_S
        for slot, taken in self._by_slot.items():
            missing -= taken
            if missing <= 0:
                return max(0.0, (slot + _KEPT_SLOTS) * SLOT_S - max(now_s, self._slot * SLOT_S))
        return WINDOW_S if amount <= self.limit and self.share is not None else None

    def _pass(self, now_s: float) -> None:
        slot = int(now_s // SLOT_S)
        if slot <= self._slot:
            if self._slot - slot > _KEPT_SLOTS:
                self._slot = slot
                if self.taken:
                    self._by_slot = {slot: self.taken}
            return
        self._slot = slot
        by_slot = self._by_slot
        while by_slot:
            oldest = next(iter(by_slot))
            if oldest > slot - _KEPT_SLOTS:
                return
            self.taken -= by_slot.pop(oldest)
