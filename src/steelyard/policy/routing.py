"""Which replica gets a request: the decision, its reason, and the charge, made in one step.

**Inputs** The candidates (account in the ledger, limit, mark), `now_s`, the request's `amount_mu`.
**Parameters** `limit`: requests that a replica may hold at once. `LOOK_AT_ALL` = 8: up to so many candidates all are
compared; above, two drawn at random (power of two choices), then all that are free if both are not.
**Trade-offs** Comparing all is exact when the ledger sees all load, and costs time in proportion to the candidates;
two choices stay cheap, and with several routers keep them from running to the same replica at once.
**Failure modes** Load that other routers put on a replica is not seen. When every candidate is full or marked there is
no decision (None): the request waits. The charge is part of the decision, so that a burst of decisions in one instant
cannot all see the same idle replica; ties are broken by the given random numbers, never by position.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from random import Random
from typing import Generic, Protocol, TypeVar

from steelyard.policy.ledger import Account, Entry, Ledger
from steelyard.policy.marks import Mark

LOOK_AT_ALL = 8


class Candidate:
    """What routing knows of a replica. The router's replicas derive from it."""

    __slots__ = ("account", "limit", "mark")

    def __init__(self, account: Account, limit: int) -> None:
        self.account = account
        self.limit = limit
        self.mark = Mark()

    def is_free(self, now_s: float) -> bool:
        return self.account.in_flight < self.limit and self.mark.until_s <= now_s


C = TypeVar("C", bound=Candidate)


class Reason(StrEnum):
    """Strings, since those are hashed in C: every decision is counted by its reason."""

    ONLY_FREE = "the only free replica"
    LEAST_BUSY = "the least busy of all"
    LESS_BUSY = "the less busy of two"
    IN_TURN = "next in turn"


class Decision(Generic[C]):
    """A replica, why, and the ledger entry that is already charged to it."""

    __slots__ = ("entry", "reason", "replica")

    def __init__(self, replica: C, reason: Reason, entry: Entry) -> None:
        self.replica = replica
        self.reason = reason
        self.entry = entry


class Chooser(Protocol):
    """The seam of routing policies."""

    def choose(self, candidates: Sequence[C], now_s: float, amount_mu: int) -> Decision[C] | None: ...


class PowerOfTwoChoices:
    """Fewest requests in flight, over all candidates when they are few, else over two drawn at random."""

    __slots__ = ("_ledger", "_random")

    def __init__(self, ledger: Ledger, rng: Random) -> None:
        self._ledger = ledger
        self._random: Callable[[], float] = rng.random

    def choose(self, candidates: Sequence[C], now_s: float, amount_mu: int) -> Decision[C] | None:
        count = len(candidates)
        if count == 1:
            only = candidates[0]
            if only.account.in_flight >= only.limit or only.mark.until_s > now_s:  # is_free, without the call
                return None
            return Decision(only, Reason.ONLY_FREE, self._ledger.charge(only.account, amount_mu))
        reason = Reason.LEAST_BUSY
        best: C | None = None
        if count > LOOK_AT_ALL:
            reason = Reason.LESS_BUSY
            first = int(self._random() * count)
            second = (first + 1 + int(self._random() * (count - 1))) % count
            best = self._least((candidates[first], candidates[second]), now_s)
        if best is None:
            best = self._least(candidates, now_s)
        if best is None:
            return None
        return Decision(best, reason, self._ledger.charge(best.account, amount_mu))

    def _least(self, candidates: Sequence[C], now_s: float) -> C | None:
        best: C | None = None
        fewest = ties = 0
        for candidate in candidates:
            if not candidate.is_free(now_s):
                continue
            load = candidate.account.in_flight
            if best is None or load < fewest:
                best, fewest, ties = candidate, load, 1
            elif load == fewest:  # keep each of k tied ones with probability 1/k
                ties += 1
                if self._random() * ties < 1.0:
                    best = candidate
        return best


class RoundRobin:
    """The baseline to compare with: free replicas in turn, whatever their load."""

    __slots__ = ("_ledger", "_turn")

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._turn = 0

    def choose(self, candidates: Sequence[C], now_s: float, amount_mu: int) -> Decision[C] | None:
        for _ in range(len(candidates)):
            candidate = candidates[self._turn % len(candidates)]
            self._turn += 1
            if candidate.is_free(now_s):
                return Decision(candidate, Reason.IN_TURN, self._ledger.charge(candidate.account, amount_mu))
        return None
