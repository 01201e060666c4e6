"""Autoscalers that people run today, to compare with: each second they see what their own metrics would tell them.

Written from their published defaults, copying no code. Each gets the replica's true concurrency as its target, which
its user would have had to find out, less the room that its own documentation asks for.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

SYNC_S = 15.0
TOLERANCE = 0.1
UP_PODS = 4
STABILISED_S = 300.0
CPU_TARGET = 0.8
KNATIVE_SHARE = 0.7  # of the container's concurrency
RAY_SHARE = 0.8  # its guide: let a replica hold a quarter more than its target
KEDA_POLL_S = 30.0
KEDA_COOLDOWN_S = 300.0


@dataclass(frozen=True, slots=True)
class Seen:
    """What could be measured of one second, at its end. `busy`: share of the ready replicas' capacity in use."""

    at_s: float
    ready: int
    starting: int
    running: float
    queued: float
    arrived: float
    service_s: float | None
    busy: float


class Autoscaler(Protocol):
    """Asked each second of virtual time. `seen` is None where the metrics of that second were lost."""

    def wanted(self, now_s: float, seen: Seen | None) -> int:
        """How many replicas there should be, ready and starting."""


@dataclass(frozen=True, slots=True)
class Site:
    """What an autoscaler is told about its replicas and bounds."""

    concurrency: float
    per_s: float  # requests of one full replica
    min_replicas: int
    max_replicas: int
    cold_start_s: float
    replicas: int  # that there are at the start


class _Window:
    """The mean of what came within the last `span_s`. None where nothing did."""

    def __init__(self, span_s: float) -> None:
        self._span_s = span_s
        self._values: deque[tuple[float, float]] = deque()
        self._sum = 0.0

    def add(self, at_s: float, value: float) -> None:
        self._values.append((at_s, value))
        self._sum += value

    def mean(self, now_s: float) -> float | None:
        while self._values and self._values[0][0] <= now_s - self._span_s:
            self._sum -= self._values.popleft()[1]
        return max(0.0, self._sum) / len(self._values) if self._values else None


class _Stabilised:
    """The rule of a HorizontalPodAutoscaler: fast up, and down to the highest that was asked for in five minutes."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.replicas = site.replicas
        self._asked: deque[tuple[float, int]] = deque()

    def sync(self, now_s: float, ratio: float, exact: int) -> int:
        """`ratio` of the metric to its target; `exact`: the replicas that would bring it to 1."""
        site = self._site
        desired = self.replicas if abs(ratio - 1) <= TOLERANCE else exact
        desired = min(max(desired, site.min_replicas), site.max_replicas)
        self._asked.append((now_s, desired))
        while self._asked[0][0] <= now_s - STABILISED_S:
            self._asked.popleft()
        if desired > self.replicas:
            self.replicas = min(desired, max(2 * self.replicas, self.replicas + UP_PODS))
        else:
            self.replicas = min(self.replicas, max(asked for _, asked in self._asked))
        return self.replicas


class KubernetesHpa:
    """HPA on CPU: every 15 s, 80 % target, 10 % tolerance, up by 100 % or 4 pods, down stabilised for 300 s."""

    def __init__(self, site: Site) -> None:
        site = replace(site, min_replicas=max(1, site.min_replicas), replicas=max(1, site.replicas))  # zero has no CPU
        self._rule = _Stabilised(site)
        self._cpu = _Window(SYNC_S)
        self._next_s = SYNC_S
        self._ready = site.replicas

    def wanted(self, now_s: float, seen: Seen | None) -> int:
        if seen is not None:
            self._cpu.add(now_s, seen.busy)
            self._ready = seen.ready
        if now_s < self._next_s:
            return self._rule.replicas
        self._next_s += SYNC_S
        busy = self._cpu.mean(now_s)
        if busy is None:
            return self._rule.replicas
        # Pods that are not ready count as idle when it would scale up, and are no reason to scale down.
        ratio = busy / CPU_TARGET
        exact = math.ceil(self._ready * ratio - 1e-9)
        if ratio > 1 and exact <= self._rule.replicas:
            ratio = 1.0
        return self._rule.sync(now_s, ratio, exact)


class KnativeKpa:
    """KPA: every 2 s, mean concurrency of 60 s, and of 6 s in panic, at twice what is ready or more."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._target = KNATIVE_SHARE * site.concurrency
        self._stable, self._panic = _Window(60.0), _Window(6.0)
        self._panicked_s: float | None = None
        self._most = 0
        self._replicas = site.replicas
        self._ready = site.replicas

    def wanted(self, now_s: float, seen: Seen | None) -> int:
        if seen is not None:
            concurrency = seen.running + seen.queued
            self._stable.add(now_s, concurrency)
            self._panic.add(now_s, concurrency)
            self._ready = seen.ready
        if now_s % 2:
            return self._replicas
        stable, panic = self._stable.mean(now_s), self._panic.mean(now_s)
        if stable is None or panic is None:
            return self._replicas
        ready = max(1, self._ready)
        least, most = self._ready // 2, 1000 * ready
        by_stable = min(max(math.ceil(stable / self._target - 1e-9), least), most)
        by_panic = min(max(math.ceil(panic / self._target - 1e-9), least), most)
        if math.ceil(panic / self._target - 1e-9) / ready >= 2:
            self._panicked_s = now_s
        elif self._panicked_s is not None and now_s - self._panicked_s >= 60.0:
            self._panicked_s, self._most = None, 0
        desired = by_stable
        if self._panicked_s is not None:
            desired = self._most = max(self._most, by_stable, by_panic)
        self._replicas = min(max(desired, self._site.min_replicas), self._site.max_replicas)
        return self._replicas


class RayServe:
    """Ongoing and queued requests ÷ target, mean of 30 s; up after 30 s, down after 600 s of asking for it."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._target = RAY_SHARE * site.concurrency
        self._ongoing = _Window(30.0)
        self._replicas = site.replicas
        self._direction, self._since_s = 0, 0.0

    def wanted(self, now_s: float, seen: Seen | None) -> int:
        if seen is not None:
            self._ongoing.add(now_s, seen.running + seen.queued)
        ongoing = self._ongoing.mean(now_s)
        if ongoing is None:
            return self._replicas
        site = self._site
        desired = min(max(math.ceil(ongoing / self._target - 1e-9), site.min_replicas), site.max_replicas)
        direction = (desired > self._replicas) - (desired < self._replicas)
        if direction != self._direction:
            self._direction, self._since_s = direction, now_s
        if direction and now_s - self._since_s >= (30.0 if direction > 0 else 600.0):
            self._replicas, self._direction = desired, 0
        return self._replicas


class KedaQueue:
    """Requests in the queue or taken from it ÷ target, polled every 30 s, scaled by an HPA; to zero after 300 s."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._rule = _Stabilised(site)
        self._next_s = SYNC_S
        self._polled: float | None = None
        self._polled_s = -math.inf
        self._active_s = 0.0

    def wanted(self, now_s: float, seen: Seen | None) -> int:
        if seen is not None and now_s - self._polled_s >= KEDA_POLL_S:
            self._polled, self._polled_s = seen.running + seen.queued, now_s
            if self._polled > 0:
                self._active_s = now_s
        if self._polled is None:
            return self._rule.replicas
        if self._site.min_replicas == 0 and now_s - self._active_s > KEDA_COOLDOWN_S:
            self._rule.replicas = 0
            return 0
        if now_s >= self._next_s:
            self._next_s += SYNC_S
            if self._polled > 0 or self._rule.replicas:
                exact = max(1, math.ceil(self._polled / self._site.concurrency - 1e-9))
                ratio = exact / self._rule.replicas if self._rule.replicas else math.inf
                self._rule.sync(now_s, ratio, exact)
        return self._rule.replicas


CONVENTIONAL: dict[str, Callable[[Site], Autoscaler]] = {
    "hpa-cpu": KubernetesHpa,
    "knative-kpa": KnativeKpa,
    "ray-serve": RayServe,
    "keda-queue": KedaQueue,
}
