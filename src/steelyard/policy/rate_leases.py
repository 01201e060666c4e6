"""One limit, several routers: each holds a share of it, decides alone, and the shares follow the demand.

**Inputs** What each router says of its use, a few times a second, the time, and which routers came or ended.
**Parameters** `SPARE` = 2 % of the limit, split evenly, so that no router is left without; `DEMAND_S` = 5 s, over which
demand is averaged; `NEED_S` = 60 s, for which an amount that was refused is looked out for; `LITTLE` = 0.5 % of the
limit, for which nothing is moved; `MUCH` = 5 %, which is reported at once when it was given up.
**Guarantees** A router takes no more within a minute than its share, and the shares never sum to more than the limit,
whatever happens to messages: a share counts as given from before its grant is sent, and as given back only when its
router has said so. What a router took within the last minute stays in its share until the minute is over. So no minute
sees more than the limit; only what requests cost beyond their estimates comes on top.
**Trade-offs** A share moves within two reports of who has it and one of who gets it: until then a router may refuse
what the others have left (it says to come back in a second). Split by demand, so that a client fares alike at every
router; an amount that is larger than such a share gets one that it fits, the longest refused first.
**Failure modes** Nothing is moved while the allocator is away: routers go on with the shares that they have. What a
router that ended had counts as taken until the minute is over.

A `LeaseAllocator` per limit stands in `lease_book.py`, each router's `Lease` of it in `lease_holder.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp

from steelyard.contracts.leases import LeaseGrant, LeaseUse, LimitKey
from steelyard.policy.token_bucket import WINDOW_S, Bucket

SPARE = 0.02
DEMAND_S = 5.0
NEED_S = 60.0
MUCH = 0.05  # of the limit: somebody waits for it
LITTLE = 0.005  # of the limit: no reason to move anything
IDLE_DEMAND = 0.01  # less than that within a minute is none
_MAX_UNCONFIRMED = 64


class Lease:
    """A router's side: keeps `bucket` within the share, and says how it fares."""

    __slots__ = (
        "_asked_before",
        "_confirms",
        "_confirms_told",
        "_demand",
        "_looked_s",
        "_need",
        "_need_until_s",
        "_need_until_total",
        "_told_active",
        "bucket",
        "key",
        "share",
        "told_s",
    )

    def __init__(self, key: LimitKey, bucket: Bucket, share: int) -> None:
        """`share`: as the allocator takes it to be."""
        self.key = key
        self.share = share
        self.told_s: float | None = None  # when it was last reported
        self._confirms = 0
        self._confirms_told = 0
        self._demand = 0.0
        self._need = 0
        self._need_until_s = 0.0
        self._need_until_total = 0  # or until so much was taken
        self._looked_s: float | None = None
        self._told_active = True
        self.adopt(bucket)

    def adopt(self, bucket: Bucket) -> None:
        """Keep that bucket within the share from now on."""
        self.bucket = bucket
        self._asked_before = bucket.asked_total
        bucket.opener = None
        bucket.share = self.share

    @property
    def has_news(self) -> bool:
        """Since the last report something was asked for, or a grant was followed."""
        return self._confirms > self._confirms_told or self.bucket.asked_total != self._asked_before

    @property
    def was_active(self) -> bool:
        """The last report said that something is in use, which has to be corrected when it is not any more."""
        return self._told_active

    def report(self, now_s: float) -> LeaseUse:
        bucket = self.bucket
        bucket.room(now_s)
        self._look_back(now_s)
        demand = 0.0 if self._demand < IDLE_DEMAND else self._demand
        self._told_active = bool(demand or bucket.taken or self._need)
        self._confirms_told = self._confirms
        self.told_s = now_s
        return LeaseUse(
            self.key,
            self._confirms,
            max(self.share, bucket.taken),
            bucket.taken,
            bucket.taken_total,
            max(demand, float(bucket.taken)),
            self._need,
        )

    def follow(self, grant: LeaseGrant) -> bool:
        """Take a grant as the share; an older one than the last changes nothing. True if it took much away."""
        if grant.number < self._confirms:
            return False
        self.bucket.elsewhere = grant.elsewhere
        if grant.number == self._confirms:
            return False
        gave_up = self.share - grant.share
        self._confirms = grant.number
        self.share = self.bucket.share = grant.share
        return gave_up > MUCH * self.key.per_minute

    def _look_back(self, now_s: float) -> None:
        """What was wanted since the last report."""
        bucket = self.bucket
        asked = bucket.asked_total
        if self._looked_s is not None and now_s > self._looked_s:
            passed_s = now_s - self._looked_s
            per_minute = (asked - self._asked_before) * WINDOW_S / passed_s
            self._demand += (per_minute - self._demand) * (1 - exp(-passed_s / DEMAND_S))
        if self._looked_s is None or now_s > self._looked_s:
            self._looked_s = now_s
            self._asked_before = asked
        refused, bucket.refused = bucket.refused, 0
        if now_s >= self._need_until_s or bucket.taken_total >= self._need_until_total:
            self._need = 0
        if self._need < refused <= bucket.limit or refused == self._need > 0:
            self._need = refused
            self._need_until_s = now_s + NEED_S
            self._need_until_total = bucket.taken_total + refused


class _Holder:
    """What the allocator knows of one router."""

    __slots__ = (
        "committed",
        "demand",
        "heard",
        "need",
        "needs_since_s",
        "number",
        "shadow",
        "taken_total",
        "unconfirmed",
    )

    def __init__(self, committed: int) -> None:
        self.committed = committed  # no less than it may believe to have
        self.heard = False
        self.number = 0  # of the newest grant
        self.unconfirmed: dict[int, int] = {}  # grants that it may follow or not: number → share
        self.demand = 0.0
        self.need = 0
        self.needs_since_s = 0.0
        self.taken_total = 0
        self.shadow = Bucket(0)  # what it took, never earlier than it did

    def hear(self, use: LeaseUse, now_s: float) -> None:
        shadow = self.shadow
        shadow.room(now_s)
        new = use.taken_total - self.taken_total if self.heard else use.taken
        shadow.take(max(new, use.taken - shadow.taken), now_s)
        shadow.give_back_oldest(shadow.taken - use.taken)  # it came back, or was given back
        self.heard = True
        self.taken_total = use.taken_total
        self.number = max(self.number, use.confirms)
        self.unconfirmed = {number: share for number, share in self.unconfirmed.items() if number > use.confirms}
        self.committed = max([use.share, *self.unconfirmed.values()])
        self.demand = use.demand
        if not use.need:
            self.need = 0
        elif not self.need:
            self.needs_since_s = now_s
        self.need = use.need

    def grant(self, share: int) -> None:
        self.number += 1
        self.unconfirmed[self.number] = share
        self.committed = max(self.committed, share)


class LeaseAllocator:
    """The shares of one limit, by router. Reports must come in the order in which they were made."""

    __slots__ = ("_gone", "_holders", "_key", "_routers")

    def __init__(self, key: LimitKey, routers: int, shares: Mapping[int, int]) -> None:
        """`routers`: how many there should be; `shares`: of those that there are."""
        self._key = key
        self._routers = routers
        self._holders = {router: _Holder(share) for router, share in shares.items()}
        self._gone: list[Bucket] = []

    def shares(self) -> dict[int, int]:
        """What each router may have, at most."""
        return {router: holder.committed for router, holder in self._holders.items()}

    def add(self, router: int, share: int) -> None:
        """A router came, with such a share."""
        self._holders[router] = _Holder(share)

    def set_aside(self, amount: int, now_s: float) -> None:
        """So much may have been taken in the last minute, by whom nobody can ask any more."""
        if amount > 0:
            bucket = Bucket(0)
            bucket.take(amount, now_s)
            self._gone.append(bucket)

    def remove(self, router: int, now_s: float) -> None:
        """That router has ended: its share is free, but for what it may have taken in the last minute."""
        holder = self._holders.pop(router, None)
        if holder is None:
            return
        shadow = holder.shadow
        shadow.room(now_s)
        shadow.take(holder.committed - shadow.taken, now_s)
        self._gone.append(shadow)

    def report(self, router: int, use: LeaseUse, now_s: float) -> LeaseGrant:
        """Take note of a router's use, and answer it."""
        self._holders[router].hear(use, now_s)
        return self.offer(router, now_s)

    def offer(self, router: int, now_s: float) -> LeaseGrant:
        """The share that a router is to have from now on, as far as it is free."""
        holder = self._holders[router]
        share = min(self._targets()[router], holder.committed + max(0, self._free(now_s)))
        latest = holder.unconfirmed.get(holder.number, holder.committed)
        if share != latest and len(holder.unconfirmed) < _MAX_UNCONFIRMED:
            holder.grant(share)
        else:
            share = latest  # that it may have heard or not
        taken = sum(other.shadow.taken for other in self._holders.values()) + self._gone_taken(now_s)
        room_here = share - holder.shadow.taken
        elsewhere = max(0, self._key.per_minute - taken - max(0, room_here))
        return LeaseGrant(self._key, holder.number, share, elsewhere)

    def too_much(self) -> list[int]:
        """The routers that have more than they are to have, or may have it: they must be told."""
        targets = self._targets()
        return [router for router, holder in self._holders.items() if holder.committed > targets[router]]

    def uneven(self) -> list[int]:
        """The routers that have another share than their even one, or may have it."""
        found = []
        for router, holder in self._holders.items():
            if holder.unconfirmed or holder.committed != even_share(self._key.per_minute, router, self._routers):
                found.append(router)
        return found

    def is_idle(self, now_s: float) -> bool:
        """Nobody took anything in the last minute, nor wants to."""
        for holder in self._holders.values():
            holder.shadow.room(now_s)
            if holder.demand or holder.need or holder.shadow.taken:
                return False
        return not self._gone_taken(now_s)

    def _free(self, now_s: float) -> int:
        committed = sum(holder.committed for holder in self._holders.values())
        return self._key.per_minute - committed - self._gone_taken(now_s)

    def _gone_taken(self, now_s: float) -> int:
        for bucket in self._gone:
            bucket.room(now_s)
        self._gone = [bucket for bucket in self._gone if bucket.taken]
        return sum(bucket.taken for bucket in self._gone)

    def _targets(self) -> dict[int, int]:
        """The limit split by demand: what each wants and an even part of the rest, or all in proportion."""
        holders = self._holders
        limit = self._key.per_minute
        demand = sum(holder.demand for holder in holders.values())
        if not demand and not any(holder.need for holder in holders.values()):
            return {router: even_share(limit, router, self._routers) for router in holders}
        scale = min(1.0, (1 - SPARE) * limit / demand) if demand else 1.0
        even = (limit - scale * demand) / len(holders)
        wanted = {router: scale * holder.demand + even for router, holder in holders.items()}
        floors = dict.fromkeys(holders, 0)
        left = limit
        for router, holder in sorted(holders.items(), key=lambda pair: pair[1].needs_since_s):
            if wanted[router] < holder.need <= left:
                floors[router] = holder.need
                left -= holder.need
        more = {router: max(0.0, wanted[router] - floors[router]) for router in holders}
        targets = {router: floors[router] + part for router, part in _apportion(left, more).items()}
        for router, holder in holders.items():
            if not floors[router] and abs(targets[router] - holder.committed) < LITTLE * limit:
                targets[router] = holder.committed
        return targets


def _apportion(total: int, weights: Mapping[int, float]) -> dict[int, int]:
    """Whole numbers that sum to `total`, in proportion to the weights (largest remainders)."""
    sum_of_weights = sum(weights.values())
    exact = {
        name: total * weight / sum_of_weights if sum_of_weights else total / len(weights)
        for name, weight in weights.items()
    }
    parts = {name: int(value) for name, value in exact.items()}
    missing = max(0, total - sum(parts.values()))
    for name in sorted(exact, key=lambda name: (parts[name] - exact[name], name))[:missing]:
        parts[name] += 1
    return parts


def even_share(limit: int, router: int, routers: int) -> int:
    """A router's part of a limit while nobody says otherwise."""
    return limit // routers + (router < limit % routers)
