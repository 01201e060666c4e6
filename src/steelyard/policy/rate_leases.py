"""One limit, several routers: each holds a share of it, decides alone, and the shares follow the demand.

**Inputs** A `Report` of each router about once a `REPORT_EVERY_S`, the time, and which routers ended.
**Parameters** `SPARE` = 2 % of the limit, split evenly, so that no router is left without; `DEMAND_S` = 5 s, over which
demand is averaged; `NEED_S` = 60 s, for which an amount that was refused is looked out for; `REPORT_EVERY_S` = 0.5 s.
**Guarantees** A router takes no more within a minute than its share, and the shares never sum to more than the limit,
whatever happens to messages: a share counts as given from before its grant is sent, and as given back only when its
router has said so. What a router took within the last minute stays in its share until the minute is over. So no minute
sees more than the limit; only what requests cost beyond their estimates comes on top.
**Trade-offs** A share moves within two reports of who has it and one of who gets it: until then a router may refuse
what the others have left (it says to come back in a second). Split by demand, so that a client fares alike at every
router; an amount that is larger than such a share gets one that it fits, the longest refused first.
**Failure modes** Nothing is moved while the allocator is away: routers go on with the shares that they have. A router
that ended keeps its share until somebody who knows says so (`remove`), and what it took until the minute is over. A new
allocator moves nothing until every router that may have a share has reported, or is known to have ended.

Control has a `LeaseAllocator` per limit that several routers share, the routers a `Lease` each.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp

from steelyard.policy.token_bucket import WINDOW_S, Bucket

SPARE = 0.02
DEMAND_S = 5.0
NEED_S = 60.0
REPORT_EVERY_S = 0.5
_MAX_UNCONFIRMED = 64


class Report:
    """What a router says of its share. `number` and `confirms` tell old ones from new."""

    __slots__ = ("confirms", "demand", "need", "number", "router", "share", "taken", "taken_total")

    def __init__(
        self,
        *,
        router: str,
        number: int,
        confirms: int,
        share: int,
        taken: int,
        taken_total: int,
        demand: float,
        need: int,
    ) -> None:
        self.router = router  # of one incarnation: a process that is started again has another name
        self.number = number  # rises with every report
        self.confirms = confirms  # number of the last grant that was followed
        self.share = share  # the most that it may have taken in a minute from now on, without another grant
        self.taken = taken  # in the last minute
        self.taken_total = taken_total  # ever
        self.demand = demand  # wanted per minute, what was refused included
        self.need = need  # the largest amount that was refused of late; 0: none was


class Grant:
    """The answer to a report: the router's share from now on, and what the others have not taken of theirs."""

    __slots__ = ("elsewhere", "number", "share")

    def __init__(self, number: int, share: int, elsewhere: int) -> None:
        self.number = number
        self.share = share
        self.elsewhere = elsewhere


class Lease:
    """A router's side: keeps `bucket` within the share, and says how it fares."""

    __slots__ = (
        "_asked_before",
        "_bucket",
        "_confirms",
        "_demand",
        "_need",
        "_need_until_s",
        "_need_until_total",
        "_number",
        "_reported_s",
        "_router",
        "_share",
    )

    def __init__(self, router: str, bucket: Bucket, share: int) -> None:
        """`share`: as the allocator was told, 0 for a router that joins later."""
        self._router = router
        self._bucket = bucket
        self._share = share
        self._number = 0
        self._confirms = 0
        self._demand = 0.0
        self._need = 0
        self._need_until_s = 0.0
        self._need_until_total = 0  # or until so much was taken
        self._asked_before = bucket.asked_total
        self._reported_s: float | None = None
        bucket.share = share

    def report(self, now_s: float) -> Report:
        bucket = self._bucket
        bucket.room(now_s)
        self._look_back(now_s)
        self._number += 1
        return Report(
            router=self._router,
            number=self._number,
            confirms=self._confirms,
            share=max(self._share, bucket.taken),
            taken=bucket.taken,
            taken_total=bucket.taken_total,
            demand=max(self._demand, float(bucket.taken)),
            need=self._need,
        )

    def follow(self, grant: Grant) -> None:
        """Take a grant as the share; an older one than the last changes nothing."""
        if grant.number <= self._confirms:
            return
        self._confirms = grant.number
        self._share = self._bucket.share = grant.share
        self._bucket.elsewhere = grant.elsewhere

    def _look_back(self, now_s: float) -> None:
        """What was wanted since the last report."""
        asked = self._bucket.asked_total
        if self._reported_s is not None and now_s > self._reported_s:
            passed_s = now_s - self._reported_s
            per_minute = (asked - self._asked_before) * WINDOW_S / passed_s
            self._demand += (per_minute - self._demand) * (1 - exp(-passed_s / DEMAND_S))
        if self._reported_s is None or now_s > self._reported_s:
            self._reported_s = now_s
            self._asked_before = asked
        bucket = self._bucket
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
        "confirms",
        "demand",
        "heard",
        "need",
        "needs_since_s",
        "number",
        "seen",
        "shadow",
        "taken_total",
        "unconfirmed",
    )

    def __init__(self, committed: int) -> None:
        self.committed = committed  # no less than it may believe to have
        self.heard = False
        self.seen = 0  # number of its newest report
        self.confirms = 0
        self.number = 0  # of the newest grant
        self.unconfirmed: dict[int, int] = {}  # grants that it may follow or not: number → share
        self.demand = 0.0
        self.need = 0
        self.needs_since_s = 0.0
        self.taken_total = 0
        self.shadow = Bucket(0)  # what it took, never earlier than it did

    def hear(self, report: Report, now_s: float) -> bool:
        """Take note of a report; False for one that an earlier one has overtaken."""
        if report.number <= self.seen:
            return False
        self.seen = report.number
        shadow = self.shadow
        shadow.room(now_s)
        new = report.taken_total - self.taken_total if self.heard else report.taken
        shadow.take(max(new, report.taken - shadow.taken), now_s)
        shadow.give_back_oldest(shadow.taken - report.taken)  # it came back, or was given back
        self.heard = True
        self.taken_total = report.taken_total
        self.confirms = report.confirms
        self.number = max(self.number, report.confirms)
        self.unconfirmed = {number: share for number, share in self.unconfirmed.items() if number > report.confirms}
        self.committed = max(report.share, *self.unconfirmed.values()) if self.unconfirmed else report.share
        self.demand = report.demand
        if not report.need:
            self.need = 0
        elif not self.need:
            self.needs_since_s = now_s
        self.need = report.need
        return True

    def grant(self, share: int) -> None:
        self.number += 1
        self.unconfirmed[self.number] = share
        self.committed = max(self.committed, share)


class LeaseAllocator:
    """The shares of one limit."""

    __slots__ = ("_gone", "_holders", "limit")

    def __init__(self, limit: int, shares: Mapping[str, int | None]) -> None:
        """`shares`: of the routers that there are; None where it is not known, and nothing moves until it is."""
        self.limit = limit
        self._holders = {router: _Holder(share or 0) for router, share in shares.items()}
        for router, share in shares.items():
            self._holders[router].heard = share is not None
        self._gone: list[Bucket] = []

    def shares(self) -> dict[str, int]:
        """What each router may have, at most."""
        return {router: holder.committed for router, holder in self._holders.items()}

    def report(self, report: Report, now_s: float) -> Grant | None:
        """Take note of a report, and answer it; None for one that came late."""
        holder = self._holders.get(report.router)
        if holder is None:
            holder = self._holders[report.router] = _Holder(0)
        if not holder.hear(report, now_s):
            return None
        share = holder.committed
        if len(holder.unconfirmed) >= _MAX_UNCONFIRMED:  # it hears nothing: say the last again
            share = holder.unconfirmed[holder.number]
        else:
            if all(other.heard for other in self._holders.values()):
                share = min(self._targets()[report.router], share + max(0, self._free(now_s)))
            holder.grant(share)
        taken = sum(other.shadow.taken for other in self._holders.values()) + self._gone_taken(now_s)
        room_here = share - holder.shadow.taken
        return Grant(holder.number, share, max(0, self.limit - taken - max(0, room_here)))

    def remove(self, router: str, now_s: float) -> None:
        """That router has ended: its share is free, but for what it may have taken in the last minute."""
        holder = self._holders.pop(router, None)
        if holder is None:
            return
        shadow = holder.shadow
        shadow.room(now_s)
        shadow.take(holder.committed - shadow.taken, now_s)
        self._gone.append(shadow)

    def _free(self, now_s: float) -> int:
        return self.limit - sum(holder.committed for holder in self._holders.values()) - self._gone_taken(now_s)

    def _gone_taken(self, now_s: float) -> int:
        for bucket in self._gone:
            bucket.room(now_s)
        self._gone = [bucket for bucket in self._gone if bucket.taken]
        return sum(bucket.taken for bucket in self._gone)

    def _targets(self) -> dict[str, int]:
        """The limit split by demand: what each wants and an even part of the rest, or all in proportion."""
        holders = self._holders
        demand = sum(holder.demand for holder in holders.values())
        scale = min(1.0, (1 - SPARE) * self.limit / demand) if demand else 1.0
        even = (self.limit - scale * demand) / len(holders)
        wanted = {router: scale * holder.demand + even for router, holder in holders.items()}
        floors = dict.fromkeys(holders, 0)
        left = self.limit
        for router, holder in sorted(holders.items(), key=lambda pair: pair[1].needs_since_s):
            if wanted[router] < holder.need <= left:
                floors[router] = holder.need
                left -= holder.need
        more = {router: max(0.0, wanted[router] - floors[router]) for router in holders}
        return {router: floors[router] + part for router, part in _apportion(left, more).items()}


def _apportion(total: int, weights: Mapping[str, float]) -> dict[str, int]:
    """Whole numbers that sum to `total`, in proportion to the weights (largest remainders)."""
    sum_of_weights = sum(weights.values())
    exact = {
        name: total * weight / sum_of_weights if sum_of_weights else total / len(weights)
        for name, weight in weights.items()
    }
    parts = {name: int(value) for name, value in exact.items()}
    missing = total - sum(parts.values())
    for name in sorted(exact, key=lambda name: (parts[name] - exact[name], name))[:missing]:
        parts[name] += 1
    return parts


def even_shares(limit: int, routers: int) -> list[int]:
    """What routers begin with."""
    return [limit // routers + (place < limit % routers) for place in range(routers)]
