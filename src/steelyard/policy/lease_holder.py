"""A router's shares of all rate limits that several routers share: what it may take, reports, and is granted.

**Inputs** The limiters' buckets (`bucket` is their source), control's answers, and the time.
**Parameters** `MAX_LEASES` = 10,000 limits with a share of their own, beyond which a router keeps its even part;
`MAX_TOLD` = 500 of them in one report; `TELL_ACTIVE_S` = 1 s between reports of a limit of which nothing new is known;
`STOPPED_S` = 10 s without a report, after which all shares are void; `ALONE_S` = 5 s, see below.
**Rules** A limit begins with the router's even part of it. Only when half of that is used does it get a lease, is
reported, and its share follows the demand (`rate_leases.py`); unused for a minute and even again, it is forgotten. So
the many users who stay far below their limit cost nothing.
**Failure modes** While control is away the shares stay as they are. A process that has just begun takes nothing before
control has answered, since its predecessor's share may be somebody else's now; if nobody answers for `ALONE_S` it takes
its even parts, which may be that much too much. One that was stopped for longer than `STOPPED_S` begins anew: control
has given its shares away.

A router has one if there are several; `router/leases.py` carries the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from steelyard.contracts.leases import LeaseAnswer, LeaseReport, LimitKey
from steelyard.policy.rate_leases import Lease, even_share
from steelyard.policy.token_bucket import Bucket

MAX_LEASES = 10_000
MAX_TOLD = 500
TELL_ACTIVE_S = 1.0
STOPPED_S = 10.0
ALONE_S = 5.0


class LeaseHolder:
    """`find` gives the bucket in use for a limit, `every` all of them. `on_open` is called when a limit got a lease."""

    def __init__(
        self,
        router: int,
        routers: int,
        *,
        find: Callable[[LimitKey], Bucket | None],
        every: Callable[[], Iterable[Bucket]],
        on_open: Callable[[], None],
    ) -> None:
        self._router = router
        self._routers = routers
        self._find = find
        self._every = every
        self._on_open = on_open
        self._leases: dict[LimitKey, Lease] = {}
        self._began_s: float | None = None
        self._unanswered_s: float | None = None  # since when, if it has not joined yet
        self._reported_s = 0.0
        self._number = 0
        self.joined = False  # it may take its even part of what it was told nothing of
        self._tell_all = False

    def __len__(self) -> int:
        """Limits with a lease."""
        return len(self._leases)

    def bucket(self, key: LimitKey, before: Bucket | None) -> Bucket:
        """The bucket that counts for a limit from now on; `before`, if it counted for the same of another amount."""
        lease = self._leases.get(key)
        if before is not None:
            past = self._leases.get(msgspec.structs.replace(key, per_minute=before.limit))
            if past is not None:
                past.adopt(Bucket(before.limit))  # it ends with one that nobody uses
            before.limit = key.per_minute
            if lease is None:
                self._arm(key, before)
            else:
                lease.adopt(before)
            return before
        if lease is not None:
            return lease.bucket
        bucket = Bucket(key.per_minute)
        self._arm(key, bucket)
        return bucket

    def report(self, now_s: float) -> LeaseReport:
        """What control has to know. Call it again and again, whether control answers or not."""
        if self._began_s is not None and now_s - self._reported_s > STOPPED_S:
            self._begin_anew()
        if self._began_s is None:
            self._began_s = now_s
        if self._unanswered_s is None:
            self._unanswered_s = now_s
        elif now_s - self._unanswered_s > ALONE_S:
            self.joined = True
        self._reported_s = now_s
        self._number += 1
        whole = self._tell_all or not self.joined
        told = list(self._leases.values()) if self._tell_all else self._to_tell(now_s)
        return LeaseReport(
            router=self._router,
            began=int(self._began_s * 1_000_000),
            number=self._number,
            joined=self.joined,
            whole=whole,
            uses=[lease.report(now_s) for lease in told],
        )

    def follow(self, answer: LeaseAnswer) -> bool:
        """Take control's answer. True if it waits for the next report."""
        self._unanswered_s = None
        again = answer.whole and not self._tell_all
        self._tell_all = answer.whole
        for grant in answer.grants:
            lease = self._leases.get(grant.key)
            if lease is None:
                bucket = self._find(grant.key) or Bucket(grant.key.per_minute)
                lease = self._leases[grant.key] = Lease(grant.key, bucket, self._even(grant.key))
            again |= lease.follow(grant)
        self.joined |= answer.joined
        return again

    def _to_tell(self, now_s: float) -> list[Lease]:
        """Those of which something is new, the one that has waited longest first; what is idle is forgotten."""
        due: list[Lease] = []
        for lease in list(self._leases.values()):
            told_s = lease.told_s
            if told_s is None or lease.has_news or (lease.was_active and now_s - told_s >= TELL_ACTIVE_S):
                due.append(lease)
            elif not lease.was_active and lease.share == self._even(lease.key):
                del self._leases[lease.key]
                self._arm(lease.key, lease.bucket)
        if len(due) > MAX_TOLD:
            due.sort(key=lambda lease: -1.0 if lease.told_s is None else lease.told_s)
        return due[:MAX_TOLD]

    def _even(self, key: LimitKey) -> int:
        return even_share(key.per_minute, self._router, self._routers) if self.joined else 0

    def _arm(self, key: LimitKey, bucket: Bucket) -> None:
        """Let it take half of the even part, and open a lease when that is not enough."""
        even = self._even(key)
        bucket.share = even // 2
        bucket.elsewhere = key.per_minute - even
        bucket.opener = partial(self._open, key)

    def _open(self, key: LimitKey, bucket: Bucket) -> None:
        if not self.joined:
            return
        bucket.opener = None
        bucket.share = self._even(key)
        if len(self._leases) < MAX_LEASES:
            self._leases[key] = Lease(key, bucket, bucket.share)
            self._on_open()

    def _begin_anew(self) -> None:
        self._began_s = self._unanswered_s = None
        self.joined = self._tell_all = False
        self._number = 0
        leases, self._leases = self._leases, {}
        for bucket in self._every():
            bucket.share = 0
        for lease in leases.values():
            self._arm(lease.key, lease.bucket)
