"""Who may wait: a request that no replica can take now is queued or refused, with the time after which to come back.

**Inputs** What waits (requests, bytes, mmu) and the bounds, whether replicas exist or are on their way, the entity's
observed rates (requests/s, mmu/s), and whether a budget of the client is spent.
**Parameters** `waiting_limit` (requests, default 1,024 from settings), `buffered_limit_bytes` (default 512 MiB of
request bodies per router), `WINDOW_S` = 10 s over which rates are observed, `MAX_RETRY_AFTER_S` = 60 s, `SPREAD` = 20 %
by which clients that were refused together are told apart.
**Rules** A budget that is spent is 429 with the reason, whatever the capacity: it is the client's own, and no replica
changes it. No capacity at all is 503. Capacity that too many want is 429.
**Trade-offs** A long queue hides short bursts and makes everyone wait in long ones; the deadline of each request
bounds that. Retry-After is the drain time, so that clients come back when it helps: of `interactive` what waits in its
class and above, of `batch` that too, worked off by what the classes above leave.
**Failure modes** With nothing completed in the window the rate is unknown, not zero: Retry-After is then that of the
replicas' nominal capacity, or `UNKNOWN_RETRY_AFTER_S` = 1 s. A rate is observed only while something waits, since an
idle replica settles little; it is believed within a factor of ten of the nominal one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from math import ceil

from steelyard.policy.rate_limits import Spent
from steelyard.policy.units import CAPACITY_MMU_PER_S
from steelyard.policy.waiting import CLASSES

WINDOW_S = 10
MAX_RETRY_AFTER_S = 60.0
UNKNOWN_RETRY_AFTER_S = 1.0
SPREAD = 0.2
_LEAST_OBSERVED_S = 2
_BELIEVED = 10.0


class Verdict(Enum):
    WAIT = "wait"
    CONTENDED = "contended"  # 429: there is capacity, but too many want it
    BUDGET_SPENT = "budget spent"  # 429: the client's own limit, whatever the capacity
    NO_CAPACITY = "no capacity"  # 503: nothing can serve


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits already, and for what."""

    waiting: int
    waiting_limit: int
    buffered_bytes: int
    buffered_limit_bytes: int
    replicas: int
    recovering: bool  # replicas are on their way


@dataclass(frozen=True, slots=True)
class Work:
    """The backlog in mmu, as one more request sees it."""

    cost_mmu: int  # of that request
    waiting_mmu: int
    waiting_limit_mmu: int
    ahead_mmu: int  # waits in its priority class and those above
    drained_mmu_per_s: float | None  # rate at which that is worked off (`drain_rate`); None: not known


@dataclass(frozen=True, slots=True)
class Admission:
    verdict: Verdict
    reason: str
    retry_after_s: float | None = 0.0  # None: coming back does not help
    line_is_full: bool = False  # then others may still give way to it (`fair_queue.py`)


def admit(
    backlog: Backlog,
    body_bytes: int,
    completions_per_s: float | None,
    *,
    work: Work | None = None,
    spent: Spent | None = None,
    draw: float = 0.0,
) -> Admission:
    """Whether a request of `body_bytes` may wait. `completions_per_s` is None when it is not known.

    `draw`: a random number in [0, 1) that sets it apart from others refused with it.
    """
    if spent is not None:
        return Admission(Verdict.BUDGET_SPENT, spent.reason, _spread(spent.retry_after_s, draw))
    if not backlog.replicas and not backlog.recovering:
        return Admission(Verdict.NO_CAPACITY, "No replica serves it now.", _spread(UNKNOWN_RETRY_AFTER_S, draw))
    if work is None:
        drained_s = drain_time_s(backlog.waiting, completions_per_s)
    else:
        drained_s = drain_time_s(work.ahead_mmu + work.cost_mmu - 1, work.drained_mmu_per_s)
    retry_after_s = _spread(drained_s, draw)
    refusal = Verdict.CONTENDED if backlog.replicas else Verdict.NO_CAPACITY
    if backlog.buffered_bytes + body_bytes > backlog.buffered_limit_bytes:
        return Admission(refusal, "Waiting requests hold all the memory meant for them.", retry_after_s)
    if backlog.waiting >= backlog.waiting_limit:
        return Admission(refusal, f"{backlog.waiting} requests are waiting already.", retry_after_s, True)
    if work is not None and work.waiting_mmu and work.waiting_mmu + work.cost_mmu > work.waiting_limit_mmu:
        return Admission(refusal, "As much work is waiting already as may.", retry_after_s, True)
    return Admission(Verdict.WAIT, "All replicas are busy." if backlog.replicas else "Replicas are on their way.")


def drain_time_s(waiting: int, per_s: float | None) -> float:
    """How long `waiting` and one more take to be served at the observed rate; bounded, never zero."""
    if not per_s:
        return UNKNOWN_RETRY_AFTER_S
    return min(MAX_RETRY_AFTER_S, max(UNKNOWN_RETRY_AFTER_S, (waiting + 1) / per_s))


def drain_rate(replicas: int, settled_mmu_per_s: float | None, above_mmu_per_s: float) -> float | None:
    """The rate at which what waits in a class and those above is worked off: what all replicas settle, or are meant to
    where that is not known, less what the classes above it go on taking. None: there is no replica.
    """
    if not replicas:
        return None
    nominal = float(replicas * CAPACITY_MMU_PER_S)
    rate = nominal
    if settled_mmu_per_s is not None:
        rate = min(_BELIEVED * nominal, max(nominal / _BELIEVED, settled_mmu_per_s))
    return max(rate - above_mmu_per_s, rate / 100)  # hardly anything left is a long time, not an unknown one


def _spread(retry_after_s: float | None, draw: float) -> float | None:
    return None if retry_after_s is None else retry_after_s * (1 + SPREAD * draw)


class _Window:
    """Amounts in each of the last `WINDOW_S` whole seconds."""

    __slots__ = ("_amounts", "_newest_s")

    def __init__(self) -> None:
        self._amounts = [0] * WINDOW_S
        self._newest_s = -1  # whole second of the newest amount

    def add(self, amount: int, now_s: float) -> None:
        if (second := int(now_s)) != self._newest_s:
            self._roll(second)
        self._amounts[second % WINDOW_S] += amount

    def total(self, now_s: float) -> int:
        self._roll(int(now_s))
        return sum(self._amounts)

    def total_between(self, begin_s: int, end_s: int) -> int:
        """Of whole seconds from `begin_s` to before `end_s`, as far as they are in the window."""
        newest = self._newest_s
        return sum(
            self._amounts[second % WINDOW_S]
            for second in range(max(begin_s, newest - WINDOW_S + 1, 0), min(end_s, newest + 1))
        )

    def _roll(self, second: int) -> None:
        """Clear the amounts of the seconds that have passed since the newest one."""
        for passed in range(max(self._newest_s + 1, second - WINDOW_S + 1), second + 1):
            self._amounts[passed % WINDOW_S] = 0
        self._newest_s = max(self._newest_s, second)


class CompletionRate:
    """Completions per second over the last `WINDOW_S` seconds; None until something completed in them."""

    __slots__ = ("_counts", "_since_s")

    def __init__(self) -> None:
        self._counts = _Window()
        self._since_s = -1.0  # first completion ever seen

    def completed(self, now_s: float) -> None:
        if self._since_s < 0:
            self._since_s = now_s
        self._counts.add(1, now_s)

    def per_s(self, now_s: float) -> float | None:
        if self._since_s < 0:
            return None
        total = self._counts.total(now_s)
        if not total:
            return None
        return total / min(float(WINDOW_S), max(1.0, now_s - self._since_s))


class SettleRate:
    """Milli-MU per second that an entity settles, by priority class, while something waits."""

    __slots__ = ("_by_class",)

    def __init__(self) -> None:
        self._by_class: Sequence[_Window] = [_Window() for _ in range(CLASSES)]

    def settled(self, priority: int, settled_mmu: int, now_s: float) -> None:
        self._by_class[priority].add(settled_mmu, now_s)

    def mmu_per_s(self, busy_since_s: float, now_s: float, above: int = CLASSES) -> float | None:
        """Of the classes above `above` (all: `CLASSES`). None while `busy_since_s`, since when something waits, is not
        two whole seconds ago, or when nothing was settled since.
        """
        end_s = int(now_s)
        begin_s = max(ceil(busy_since_s), end_s - WINDOW_S + 1)
        if end_s - begin_s < _LEAST_OBSERVED_S:
            return None
        total = 0
        for window in self._by_class[:above]:
            window.total(now_s)
            total += window.total_between(begin_s, end_s)
        return total / (end_s - begin_s) if total else None
