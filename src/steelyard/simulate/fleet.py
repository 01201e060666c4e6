"""Replicas of one model as a fluid in steps of a second: what arrives waits in order, what is ordered starts late.

It counts requests, it does not follow each: thousands a second cost what ten do, and chance within a second is not
seen. The autoscaling comparison steps it, and so do the policy's tests. It decides nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

STEP_S = 1.0


@dataclass(frozen=True, slots=True)
class ReplicaModel:
    """`curve`: concurrency and the seconds that a request then takes, ascending. `concurrency`: what it may hold."""

    concurrency: float
    curve: Sequence[tuple[float, float]]
    cold_start_s: float
    cold_spread: float = 0.2  # starts differ by up to so much of it, either way

    def service_s(self, held: float) -> float:
        """Between two points of the curve in a straight line; beyond its end throughput stays."""
        at = bisect_right(self.curve, (held, float("inf")))
        if at == 0:
            return self.curve[0][1]
        low, low_s = self.curve[at - 1]
        if at == len(self.curve):
            return low_s * max(1.0, held / low)
        high, high_s = self.curve[at]
        return low_s + (high_s - low_s) * (held - low) / (high - low)

    @property
    def per_s(self) -> float:
        """Requests a second of one full replica."""
        return self.concurrency / self.service_s(self.concurrency)


@dataclass(slots=True)
class Second:
    """What came of one second. `waits`: counts of requests and how long they had waited when they were taken."""

    served: float = 0.0
    rejected: float = 0.0
    running: float = 0.0
    waits: list[tuple[float, float]] = field(default_factory=list)


class Fleet:
    """`queue_limit`: requests that may wait, per router set; `deadline_s`: how long one may wait."""

    def __init__(
        self, model: ReplicaModel, replicas: int, rng: Random, *, queue_limit: float, deadline_s: float
    ) -> None:
        self.model = model
        self.ready = replicas
        self.now_s = 0.0
        self.queued = 0.0
        self.running = 0.0
        self.service_s = model.service_s(0.0)
        self.replica_s = 0.0  # of all replicas so far, the starting ones included
        self._starting: list[float] = []  # when each will be ready
        self._queue: deque[list[float]] = deque()  # arrival and count
        self._random: Callable[[], float] = rng.random
        self._queue_limit, self._deadline_s = queue_limit, deadline_s

    @property
    def starting(self) -> int:
        return len(self._starting)

    def order(self, replicas: int) -> None:
        """There shall be so many, ready or starting. Those that start go first, the youngest before all."""
        for _ in range(replicas - self.ready - len(self._starting)):
            model = self.model
            spread = model.cold_spread * (2 * self._random() - 1)
            self._starting.append(self.now_s + model.cold_start_s * (1 + spread))
        surplus = self.ready + len(self._starting) - replicas
        while surplus > 0 and self._starting:
            self._starting.pop()
            surplus -= 1
        self.ready -= max(0, surplus)

    def step(self, arrivals: float) -> Second:
        """One second with so many arrivals."""
        now_s = self.now_s
        due = [at_s for at_s in self._starting if at_s <= now_s]
        if due:
            self._starting = [at_s for at_s in self._starting if at_s > now_s]
            self.ready += len(due)
        second = Second()
        per_s = self.ready * self.model.per_s
        room = max(0.0, self._queue_limit + per_s * STEP_S - self.queued)
        second.rejected = max(0.0, arrivals - room)
        if arrivals > second.rejected:
            self._queue.append([now_s, arrivals - second.rejected])
        self._serve(second, per_s)
        while self._queue and now_s + STEP_S - self._queue[0][0] > self._deadline_s:
            second.rejected += self._queue.popleft()[1]
        self.queued = sum(count for _, count in self._queue)
        held = second.served * self.service_s / self.ready if self.ready else 0.0
        if self.queued > 0 and self.ready:
            held = self.model.concurrency  # a queue forms only where all are full
        self.service_s = self.model.service_s(min(held, self.model.concurrency))
        second.running = self.running = held * self.ready
        self.replica_s += (self.ready + len(self._starting)) * STEP_S
        self.now_s = now_s + STEP_S
        return second

    def _serve(self, second: Second, per_s: float) -> None:
        left = per_s * STEP_S
        while self._queue and left > 1e-9:
            arrived_s, count = self._queue[0]
            taken = min(count, left)
            # Those of this second come all through it and are taken as they come, those from before in order.
            wait_s = max(0.0, self.now_s + (second.served + taken / 2) / per_s - arrived_s - STEP_S / 2)
            second.waits.append((taken, 0.0 if arrived_s == self.now_s and count <= left else wait_s))
            second.served += taken
            left -= taken
            if taken < count:
                self._queue[0][1] = count - taken
            else:
                self._queue.popleft()
