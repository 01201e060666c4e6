"""One autoscaler under one load on virtual time: the fleet is stepped each second, and the autoscaler is asked.

Ours is `policy/horizontal.py`, the lines that control runs, fed with what a live one would be told. Two bounds stand
beside the autoscalers: the smallest fixed number of replicas that keeps every request within the target, known in
hindsight, and one that orders at once what each second needs, so that only starting takes time.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import numpy as np

from steelyard.policy.demand_window import Sample
from steelyard.policy.horizontal import DECIDE_EVERY_S, DOWN_WINDOW_S, Horizontal, Limits
from steelyard.simulate.conventional import CONVENTIONAL, Autoscaler, Seen, Site
from steelyard.simulate.fleet import Fleet
from steelyard.simulate.loads import Load

OURS = "steelyard"
STATIC_PEAK = "static-peak"
INSTANT = "instant"
TARGET_S = 10.0  # how long a request may wait to be within target
QUEUE_LIMIT = 4096.0  # requests: four routers' queues
DEADLINE_S = 60.0
BOUND = 2  # an autoscaler may order so many times the static peak: users do set a maximum
MOST_REPLICAS = 100_000
IDLE_TIMEOUT_S = 300.0
BINS_PER_S = 20
ROOM = 1.2  # all begin with what holds the first minute


class Steelyard:
    """The horizontal axis, with the replica's concurrency as its target."""

    def __init__(self, site: Site) -> None:
        limits = Limits(site.min_replicas, site.max_replicas, IDLE_TIMEOUT_S if site.min_replicas == 0 else None)
        self._site = site
        self._horizontal = Horizontal(limits, replicas=site.replicas)

    def wanted(self, now_s: float, seen: Seen | None) -> int:
        if seen is not None:
            self._horizontal.observe(
                Sample(
                    at_s=seen.at_s,
                    demand=seen.running + seen.queued,
                    ready=seen.ready,
                    starting=seen.starting,
                    queued=seen.queued,
                    arrived_per_s=seen.arrived,
                    service_s=seen.service_s,
                )
            )
        target = self._site.concurrency
        if now_s % DECIDE_EVERY_S == 0 or self._horizontal.urgent(now_s, target):
            self._horizontal.decide(now_s, target, self._site.cold_start_s)
        return self._horizontal.replicas


class Instant:
    """A bound, no autoscaler: the rate of each second is known at its end, and what it needs is kept for 5 minutes."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._needs: deque[tuple[float, int]] = deque()  # of the window, each above all that came later

    def wanted(self, now_s: float, seen: Seen | None) -> int:
        needs = self._needs
        if seen is None:
            return needs[0][1] if needs else self._site.replicas
        need = max(self._site.min_replicas, math.ceil(seen.arrived / self._site.per_s - 1e-9))
        while needs and needs[-1][1] <= need:
            needs.pop()
        needs.append((now_s, need))
        while needs[0][0] <= now_s - DOWN_WINDOW_S:
            needs.popleft()
        return min(needs[0][1], self._site.max_replicas)


class _Fixed:
    """Always so many."""

    def __init__(self, replicas: int) -> None:
        self._replicas = replicas

    def wanted(self, now_s: float, seen: Seen | None) -> int:
        return self._replicas


AUTOSCALERS: dict[str, Callable[[Site], Autoscaler]] = {OURS: Steelyard, **CONVENTIONAL, INSTANT: Instant}
NAMES = (*AUTOSCALERS, STATIC_PEAK)


def _floats() -> array[float]:
    return array("d")


@dataclass(slots=True)
class Run:
    """What came of it, second by second. `waits`: served requests by how many bins they had waited, rounded up."""

    autoscaler: str
    load: Load
    replicas: array[float] = field(default_factory=_floats)  # ready and starting
    ready: array[float] = field(default_factory=_floats)
    queued: array[float] = field(default_factory=_floats)
    rejected: array[float] = field(default_factory=_floats)
    longest_s: array[float] = field(default_factory=_floats)  # wait of those taken in that second
    waits: dict[int, float] = field(default_factory=dict)
    replica_s: float = 0.0


def run(load: Load, autoscaler: str, *, target_s: float = TARGET_S, seed: int = 1) -> Run:
    """Raises KeyError for an autoscaler that is not known."""
    model = load.model
    peak = static_peak(load, target_s)
    first = sum(load.arrivals[:60]) / 60 / model.per_s
    replicas = max(load.min_replicas, math.ceil(ROOM * first)) if autoscaler != STATIC_PEAK else peak
    site = Site(model.concurrency, model.per_s, load.min_replicas, BOUND * peak, model.cold_start_s, replicas)
    scaler = _Fixed(peak) if autoscaler == STATIC_PEAK else AUTOSCALERS[autoscaler](site)
    fleet = Fleet(model, replicas, Random(seed), queue_limit=QUEUE_LIMIT, deadline_s=DEADLINE_S)
    return _run(Run(autoscaler, load), scaler, fleet, Random(seed))


def _run(this: Run, scaler: Autoscaler, fleet: Fleet, rng: Random) -> Run:
    load = this.load
    waits = this.waits
    for arrivals in load.arrivals:
        second = fleet.step(arrivals)
        longest_s = 0.0
        for count, wait_s in second.waits:
            place = math.ceil(wait_s * BINS_PER_S)
            waits[place] = waits.get(place, 0.0) + count
            longest_s = max(longest_s, wait_s)
        seen: Seen | None = None
        if not load.lost or rng.random() >= load.lost:
            capacity = fleet.ready * load.model.per_s
            seen = Seen(
                at_s=fleet.now_s,
                ready=fleet.ready,
                starting=fleet.starting,
                running=fleet.running,
                queued=fleet.queued,
                arrived=arrivals,
                service_s=fleet.service_s if second.served else None,
                busy=min(1.0, second.served / capacity) if capacity else 0.0,
            )
        fleet.order(scaler.wanted(fleet.now_s, seen))
        this.replicas.append(fleet.ready + fleet.starting)
        this.ready.append(fleet.ready)
        this.queued.append(fleet.queued)
        this.rejected.append(second.rejected)
        this.longest_s.append(longest_s)
    this.replica_s = fleet.replica_s
    return this


def static_peak(load: Load, target_s: float) -> int:
    """By halving: the smallest number whose queue never grows beyond the target or the limit."""
    arrivals = np.asarray(load.arrivals, dtype=float)

    def holds(replicas: int) -> bool:
        per_s = replicas * load.model.per_s
        surplus = np.cumsum(arrivals - per_s)
        queue = surplus - np.minimum(np.minimum.accumulate(surplus), 0.0)
        return bool(queue.max() <= min(QUEUE_LIMIT, target_s * per_s))

    low, high = 0, MOST_REPLICAS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
