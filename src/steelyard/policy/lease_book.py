"""Control's side of all rate limits that several routers share: who is there, and what share each has of each limit.

**Inputs** The routers' reports, a few times a second each, and the time.
**Parameters** `MAX_LIMITS` = 10,000 limits whose shares move, beyond which routers keep their even parts; `SILENT_S` =
15 s without a report, after which a router's shares are free (its own side counts them void sooner); `SCAN_EVERY_S` =
5 s between looks for limits that nobody uses.
**Rules** A limit that nobody reported is split evenly. What is reported gets a `LeaseAllocator`; routers that do not
use that limit themselves learn from their next answer what they have to give up. When nobody has used it for a minute,
the shares become even again and it is forgotten.
**Failure modes** A new book grants nothing before every router has told it all that it has, or was silent; what nobody
has by then counts as taken for a minute. A router that begins anew takes the place of the one before it, whose shares
are free; what that one took of a limit that it had not reported yet is forgotten. A book that nobody asks, or that was
kept from answering, counts nobody as silent.

Pure: `control/api/internal.py` asks it, and its answers follow from the reports and the times alone.
"""

from __future__ import annotations

from steelyard.contracts.leases import LeaseAnswer, LeaseGrant, LeaseReport, LeaseUse, LimitKey
from steelyard.policy.rate_leases import LeaseAllocator, even_share

MAX_LIMITS = 10_000
SILENT_S = 15.0
SCAN_EVERY_S = 5.0
_MOST_PASSED_S = 1.0  # that counts as silence between two reports of whomever


class _Member:
    """A router that lives."""

    __slots__ = ("began", "heard_s", "pending", "seen", "told")

    def __init__(self, report: LeaseReport) -> None:
        self.began = report.began
        self.seen = 0  # number of its newest report
        self.heard_s = 0.0
        self.told = report  # its newest that was whole
        self.pending: dict[LimitKey, None] = {}  # what it must be told, whether it reports it or not; in order


class LeaseBook:
    """One per control. `routers`: how many there should be."""

    def __init__(self, routers: int) -> None:
        self._routers = routers
        self._members: dict[int, _Member] = {}
        self._allocators: dict[LimitKey, LeaseAllocator] = {}
        self._is_complete = False  # the shares of all are known
        self._asked_s: float | None = None
        self._passed_s = 0.0  # while it was asked
        self._scanned_s = 0.0

    def __len__(self) -> int:
        """Limits whose shares move."""
        return len(self._allocators)

    def shares(self, key: LimitKey) -> dict[int, int]:
        """What each router that lives may have of a limit, at most."""
        allocator = self._allocators.get(key)
        return self._even_shares(key) if allocator is None else allocator.shares()

    def report(self, report: LeaseReport, now_s: float) -> LeaseAnswer:
        self._pass(now_s)
        router = report.router
        member = self._members.get(router)
        nothing = LeaseAnswer(joined=report.joined)
        if not 0 <= router < self._routers:
            return nothing
        if member is not None and report.began <= member.began:
            if report.began < member.began or report.number <= member.seen:
                return nothing  # it came late
        elif report.whole:
            member = self._come(report, now_s)
        if member is None or report.began != member.began:
            return LeaseAnswer(joined=report.joined, whole=True)
        member.seen = report.number
        member.heard_s = self._passed_s
        if not self._is_complete:
            if report.whole:
                member.told = report
            if not self._complete(now_s):
                return LeaseAnswer(joined=report.joined, whole=True)
        if not report.joined:
            member.pending = dict.fromkeys(self._allocators)
        grants = [grant for use in report.uses if (grant := self._hear(router, use, now_s)) is not None]
        told = {grant.key for grant in grants}
        for key in member.pending:
            if key not in told:
                grants.append(self._allocators[key].offer(router, now_s))
        return LeaseAnswer(joined=True, grants=grants)

    def _come(self, report: LeaseReport, now_s: float) -> _Member:
        """A router is new here, or began anew."""
        router = report.router
        self._remove(router, now_s)
        member = self._members[router] = _Member(report)
        if self._is_complete:
            for key, allocator in self._allocators.items():
                allocator.add(router, even_share(key.per_minute, router, self._routers) if report.joined else 0)
        return member

    def _complete(self, now_s: float) -> bool:
        """Begin to grant, if all that may have shares have told them."""
        if len(self._members) < self._routers and self._passed_s < SILENT_S:
            return False
        self._is_complete = True
        told = {router: {use.key: use for use in member.told.uses} for router, member in self._members.items()}
        for key in dict.fromkeys(key for uses in told.values() for key in uses):
            shares = {}
            for router, uses in told.items():
                if key in uses:
                    shares[router] = uses[key].share
                elif self._members[router].told.joined:
                    shares[router] = even_share(key.per_minute, router, self._routers)
                else:
                    shares[router] = 0
            allocator = self._allocators[key] = LeaseAllocator(key, self._routers, shares)
            allocator.set_aside(key.per_minute - sum(shares.values()), now_s)  # by those who ended before
        return True

    def _hear(self, router: int, use: LeaseUse, now_s: float) -> LeaseGrant | None:
        key = use.key
        allocator = self._allocators.get(key)
        if allocator is None:
            if len(self._allocators) >= MAX_LIMITS:
                return None
            allocator = self._allocators[key] = LeaseAllocator(key, self._routers, self._even_shares(key))
        self._members[router].pending.pop(key, None)
        grant = allocator.report(router, use, now_s)
        for other in allocator.too_much():
            self._members[other].pending[key] = None
        return grant

    def _even_shares(self, key: LimitKey) -> dict[int, int]:
        return {router: even_share(key.per_minute, router, self._routers) for router in self._members}

    def _pass(self, now_s: float) -> None:
        """Note the time: who has become silent, and what nobody uses any more."""
        if self._asked_s is not None:
            self._passed_s += max(0.0, min(now_s - self._asked_s, _MOST_PASSED_S))
        self._asked_s = now_s
        for router, member in list(self._members.items()):
            if self._passed_s - member.heard_s > SILENT_S:
                self._remove(router, now_s)
        if self._passed_s - self._scanned_s >= SCAN_EVERY_S:
            self._scanned_s = self._passed_s
            self._forget_idle(now_s)

    def _remove(self, router: int, now_s: float) -> None:
        if self._members.pop(router, None) is not None:
            for allocator in self._allocators.values():
                allocator.remove(router, now_s)

    def _forget_idle(self, now_s: float) -> None:
        for key, allocator in list(self._allocators.items()):
            if allocator.is_idle(now_s):
                uneven = allocator.uneven()
                for router in uneven:
                    self._members[router].pending[key] = None
                if not uneven:
                    del self._allocators[key]
                    for member in self._members.values():
                        member.pending.pop(key, None)
