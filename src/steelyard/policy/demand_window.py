"""What is known of an endpoint's demand: one sample a second, kept for as long as a decision may look back.

The horizontal axis owns one per served entity, feeds it what the routers reported and asks it for figures over windows
of time. It never decides, and it never fills a gap: a second without a report is absent, not zero.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass

KEPT_S = 300.0
NOISE_SAMPLES = 60
SMOOTH_S = 5.0  # arrivals of one second are too few to tell a rate


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at all routers. Demand is in one unit: model units in flight, or requests where they are alike.

    `demand` None: no router reported. `arrived_per_s` and `service_s` (how long a unit stays with a replica) are None
    where they are not known. `reporters` of `expected` routers are in the sums; a lost router's last report is in none.
    """

    at_s: float
    demand: float | None  # running and queued
    ready: int
    starting: int
    queued: float = 0.0
    arrived_per_s: float | None = None
    service_s: float | None = None
    reporters: int = 1
    expected: int = 1

    @property
    def known(self) -> bool:
        return self.demand is not None and self.reporters > 0

    def whole(self) -> Sample:
        """As it would be had every router reported: those that did stand for the others."""
        if not self.known or self.reporters >= self.expected or self.demand is None:
            return self
        scale = self.expected / self.reporters
        return Sample(
            at_s=self.at_s,
            demand=self.demand * scale,
            ready=self.ready,
            starting=self.starting,
            queued=self.queued * scale,
            arrived_per_s=None if self.arrived_per_s is None else self.arrived_per_s * scale,
            service_s=self.service_s,
            reporters=self.reporters,
            expected=self.expected,
        )


@dataclass(frozen=True, slots=True)
class Load:
    """The load of one second. `offered`: what would be in flight had nobody to wait, as far as that is known."""

    at_s: float
    offered: float
    running: float
    queued: float
    ready: int
    starting: int


@dataclass(frozen=True, slots=True)
class Surge:
    """What arrives right now: units that the last two seconds, both of them, would keep in flight, and their rise.

    `noise`: by how much one second usually differs from the next.
    """

    units: float
    rise_per_s: float
    noise: float


class DemandWindow:
    """The samples of the last `KEPT_S`. Times only grow: a sample that comes twice, or late, is left out."""

    __slots__ = ("_arrivals", "_loads", "_noise_per_s", "first_s", "service_s")

    def __init__(self) -> None:
        self._loads: deque[Load] = deque()
        self._arrivals: deque[tuple[float, float]] = deque()  # of the last SMOOTH_S
        self.first_s: float | None = None  # since when it is watched
        self.service_s: float | None = None  # the last that was known
        self._noise_per_s = 0.0

    def observe(self, sample: Sample) -> bool:
        """Whether it told something new."""
        if not sample.known or (self._loads and sample.at_s <= self._loads[-1].at_s):
            return False
        sample = sample.whole()
        assert sample.demand is not None
        if sample.service_s is not None and sample.service_s > 0:
            self.service_s = sample.service_s
        if self.first_s is None:
            self.first_s = sample.at_s
        running = max(0.0, sample.demand - sample.queued)
        offered, queued = self._offered(sample, running), max(0.0, sample.queued)
        self._loads.append(Load(sample.at_s, offered, running, queued, sample.ready, sample.starting))
        while self._loads[0].at_s <= sample.at_s - KEPT_S:
            self._loads.popleft()
        return True

    def _offered(self, sample: Sample, running: float) -> float:
        """Little's law where arrivals are known: a queue that built up while replicas start is no lasting demand.

        Nor is what runs while a queue is worked off; without one, what runs holds its place until it ends.

        Where they are not, a queue is demand up to what runs: it doubles what is offered, it never multiplies it.
        """
        if sample.arrived_per_s is None or self.service_s is None:
            return running + min(running, max(0.0, sample.queued))
        if self._arrivals:
            step = abs(sample.arrived_per_s - self._arrivals[-1][1])
            self._noise_per_s += (step - self._noise_per_s) / NOISE_SAMPLES
        self._arrivals.append((sample.at_s, sample.arrived_per_s))
        while self._arrivals[0][0] <= sample.at_s - SMOOTH_S:
            self._arrivals.popleft()
        rate = sum(arrived for _, arrived in self._arrivals) / len(self._arrivals)
        offered = rate * self.service_s
        return offered if sample.queued > 0 else max(running, offered)

    @property
    def latest(self) -> Load | None:
        return self._loads[-1] if self._loads else None

    @property
    def flow_known(self) -> bool:
        """Whether arrivals tell the demand, so that a queue need not."""
        return bool(self._arrivals) and self.service_s is not None

    def surge(self) -> Surge | None:
        """None where arrivals are not known, or too few of them."""
        if self.service_s is None or len(self._arrivals) < 2:
            return None
        arrived = [per_s for _, per_s in self._arrivals]
        rise = 0.0
        if len(arrived) >= SMOOTH_S:
            # A step lies in one half of these seconds, and so is no rise that goes on.
            middle = len(arrived) // 2
            rise = max(0.0, min(arrived[-1] - arrived[middle], arrived[middle] - arrived[0])) / middle
        units = self.service_s
        return Surge(units * min(arrived[-2:]), units * rise, units * self._noise_per_s)

    def last(self, span_s: float, now_s: float) -> list[Load]:
        """The loads of the last `span_s`, the oldest first."""
        found: list[Load] = []
        for load in reversed(self._loads):
            if load.at_s <= now_s - span_s:
                break
            found.append(load)
        found.reverse()
        return found

    def offered_quantile(self, share: float, span_s: float, now_s: float) -> float:
        """By nearest rank: a value that occurred. Zero where nothing did."""
        values = sorted(load.offered for load in self.last(span_s, now_s))
        return values[max(0, math.ceil(share * len(values)) - 1)] if values else 0.0

    def steady_rise_per_s(self, span_s: float, now_s: float) -> float:
        """How fast the offered load grew throughout the span: the least rise between its quarters, zero if any fell.

        A step lies in one quarter or on the edge of two, and so never counts as a rise that goes on.
        """
        quarter_s = span_s / 4
        sums, counts = [0.0] * 4, [0] * 4
        for load in self.last(span_s, now_s):
            quarter = min(3, max(0, int((load.at_s - now_s + span_s) / quarter_s)))
            sums[quarter] += load.offered
            counts[quarter] += 1
        if min(counts) == 0:
            return 0.0
        means = [total / count for total, count in zip(sums, counts, strict=True)]
        return max(0.0, min(after - before for before, after in itertools.pairwise(means))) / quarter_s

    def state(self) -> dict[str, object]:
        """All of it, as JSON can hold it."""
        return {
            "loads": [asdict(load) for load in self._loads],
            "arrivals": [list(pair) for pair in self._arrivals],
            "noise_per_s": self._noise_per_s,
            "first_s": self.first_s,
            "service_s": self.service_s,
        }

    def restore(self, state: Mapping[str, object]) -> None:
        loads, arrivals = state["loads"], state["arrivals"]
        assert isinstance(loads, list)
        assert isinstance(arrivals, list)
        self._loads = deque(Load(**load) for load in loads)
        self._arrivals = deque((float(at_s), float(arrived)) for at_s, arrived in arrivals)
        noise_per_s = state.get("noise_per_s")
        self._noise_per_s = float(noise_per_s) if isinstance(noise_per_s, int | float) else 0.0
        first_s, service_s = state["first_s"], state["service_s"]
        self.first_s = float(first_s) if isinstance(first_s, int | float) else None
        self.service_s = float(service_s) if isinstance(service_s, int | float) else None
