"""From what each router says of an entity to one sample of its demand, in requests of the entity's mean weight.

**Inputs** Each router's totals (None: it did not answer), how many requests the replicas run at once, and `now_s`.
**Parameters** `HALF_LIFE_S` = 20 s: how fast what was learnt of a request's time at a replica and of its weight is
forgotten. `MOST_HEAVY` = 2: so many requests stand for one at most, and one for so many.
**Trade-offs** A request counts by its weight: one of twice the mean's model units is two. Where all weigh alike that is
their number, so that one rule serves both kinds of model, and a target in requests per replica fits both. The bound
costs some foresight where weights differ by more; without it a new price, which the mean follows within a minute, would
look like a change of the load.
A replica may hold more requests than it runs: those beyond wait, wherever they do, and the time at a replica is
shortened by their share, so that a queue inside is neither load nor slowness. At saturation what is offered is then
the rate of arrivals by what a replica really gets done, whatever was thought of how many it runs.
**Failure modes** A router that is silent is in no sum, and its last report counts for nothing. One that restarted
begins its totals at zero: what they hold is what came since. Of a router that is asked for the first time arrivals are
not known, so neither is their sum. Where nothing weighs anything, requests are counted.

Pure; control's autoscaler feeds it and hands the samples on to `horizontal.py`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from steelyard.policy.demand_window import Sample

HALF_LIFE_S = 20.0
LOOK_BACK_S = 60.0
MOST_HEAVY = 2.0


@dataclass(frozen=True, slots=True)
class Totals:
    """One router's report of one entity; see `contracts/demand.py` for the meaning of each."""

    running: int = 0
    running_mmu: int = 0
    queued: int = 0
    queued_mmu: int = 0
    arrived: int = 0
    settled: int = 0
    settled_mmu: int = 0
    busy_s: float = 0.0
    busy_mmu_s: float = 0.0


class _Mean:
    """A mean whose past fades."""

    __slots__ = ("_amount", "_at_s", "_weight")

    def __init__(self) -> None:
        self._amount = self._weight = 0.0
        self._at_s: float | None = None

    def add(self, amount: float, weight: float, now_s: float) -> None:
        if self._at_s is not None:
            kept = 0.5 ** (max(0.0, now_s - self._at_s) / HALF_LIFE_S)
            self._amount *= kept
            self._weight *= kept
        self._at_s = now_s
        self._amount += amount
        self._weight += weight

    @property
    def value(self) -> float | None:
        return self._amount / self._weight if self._weight > 1e-12 else None


class DemandSum:
    """Of one served entity."""

    def __init__(self) -> None:
        self._before: dict[int, tuple[float, Totals]] = {}  # by router
        self._ran: deque[tuple[float, float]] = deque()  # share of the requests at replicas that ran, of LOOK_BACK_S
        self._service = _Mean()
        self._weight = _Mean()

    @property
    def mean_mmu(self) -> float | None:
        """What a request is charged, about. None: nothing was served, or nothing weighs anything."""
        return self._weight.value or None

    def take(
        self, reports: Sequence[Totals | None], now_s: float, ready: int, starting: int, at_once: float = math.inf
    ) -> Sample:
        """`reports`: one for each router that there should be. `at_once`: requests that all ready replicas run at once.
        To be called with times that only grow."""
        share = self._note_share(reports, now_s, at_once)
        arrived_per_s: float | None = 0.0
        known = [totals for totals in reports if totals is not None]
        for index, totals in enumerate(reports):
            if totals is None:
                continue
            before = self._before.get(index)
            self._before[index] = (now_s, totals)
            if before is None or now_s <= before[0]:
                arrived_per_s = None
                continue
            since = _since(before[1], totals)
            if arrived_per_s is not None:
                arrived_per_s += since.arrived / (now_s - before[0])
            self._learn(since, now_s)
        demand = queued = 0.0
        mean_mmu = self.mean_mmu
        for totals in known:
            waiting = _in_requests(totals.queued, totals.queued_mmu, mean_mmu)
            running = _in_requests(totals.running, totals.running_mmu, mean_mmu)
            queued += waiting + running * (1 - share)
            demand += waiting + running
        return Sample(
            at_s=now_s,
            demand=demand if known else None,
            ready=ready,
            starting=starting,
            queued=queued,
            arrived_per_s=arrived_per_s if known else None,
            service_s=self._service.value,
            reporters=len(known),
            expected=len(reports),
        )

    def _learn(self, since: Totals, now_s: float) -> None:
        self._weight.add(since.settled_mmu, since.settled, now_s)
        busy, units = since.busy_mmu_s, since.settled_mmu
        if not units and self.mean_mmu is None:
            busy, units = since.busy_s, since.settled
        if units:
            self._service.add(busy * self._least_share(now_s - busy / units), units, now_s)

    def _note_share(self, reports: Sequence[Totals | None], now_s: float, at_once: float) -> float:
        """Which share of the requests at replicas runs."""
        running = sum(totals.running for totals in reports if totals is not None)
        share = min(1.0, at_once / running) if running and at_once > 0 else 1.0
        while self._ran and self._ran[0][0] < now_s - LOOK_BACK_S:
            self._ran.popleft()
        self._ran.append((now_s, share))
        return share

    def _least_share(self, since_s: float) -> float:
        """For a request that was at a replica since then: it waited for all that were there before it."""
        return min((share for at_s, share in self._ran if at_s >= since_s), default=1.0)


def _since(before: Totals, now: Totals) -> Totals:
    """What came between two reports; all of the second where the router has begun anew."""
    if now.arrived < before.arrived or now.settled < before.settled or now.busy_s < before.busy_s:
        return now
    return Totals(
        arrived=now.arrived - before.arrived,
        settled=now.settled - before.settled,
        settled_mmu=now.settled_mmu - before.settled_mmu,
        busy_s=now.busy_s - before.busy_s,
        busy_mmu_s=now.busy_mmu_s - before.busy_mmu_s,
    )


def _in_requests(count: int, mmu: int, mean_mmu: float | None) -> float:
    if not mean_mmu:
        return float(count)
    return min(MOST_HEAVY * count, max(count / MOST_HEAVY, mmu / mean_mmu))
