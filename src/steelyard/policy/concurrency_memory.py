"""What was measured of a model at which concurrency: the windows of now, pooled, and what is remembered of before.

The vertical axis owns one of each. It never decides: it keeps means, weighted by the requests that they came from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

BUCKET = 1.25  # concurrencies that differ by less are the same
WEIGHT = 0.2  # of what is new in what is remembered
KNOWN = 2  # windows at a concurrency before they are something to compare with
KEPT_WINDOWS = 20


@dataclass(frozen=True, slots=True)
class Window:
    """Of the replicas of one version, since the last decision. Means are per replica, `completions` are all.

    Only requests that succeeded count: fast errors are no throughput. `memory`: the fullest replica's share, or None.
    """

    completions: int
    concurrency: float  # mean of requests in flight
    throughput_per_s: float
    p50_s: float
    p90_s: float
    memory: float | None = None


class Point(NamedTuple):
    """Means at about one concurrency."""

    concurrency: float
    throughput_per_s: float
    p50_s: float
    p90_s: float


class Pool:
    """The last windows under the same target, as one. `misses`: windows that did not fill a trial."""

    __slots__ = ("_windows", "misses")

    def __init__(self) -> None:
        self._windows: list[tuple[int, Point]] = []
        self.misses = 0

    @property
    def windows(self) -> int:
        return len(self._windows)

    @property
    def completions(self) -> int:
        return sum(count for count, _ in self._windows)

    def add(self, window: Window) -> None:
        point = Point(window.concurrency, window.throughput_per_s, window.p50_s, window.p90_s)
        self._windows = [*self._windows[1 - KEPT_WINDOWS :], (window.completions, point)]

    def point(self) -> Point:
        """Raises ValueError where there is none."""
        total = self.completions
        if not total:
            raise ValueError("There is no window to take the mean of.")
        time = len(self._windows)
        return Point(
            sum(point.concurrency for _, point in self._windows) / time,
            sum(point.throughput_per_s for _, point in self._windows) / time,
            sum(count * point.p50_s for count, point in self._windows) / total,
            sum(count * point.p90_s for count, point in self._windows) / total,
        )

    def clear(self) -> None:
        self._windows = []

    def state(self) -> dict[str, object]:
        return {"windows": [[count, *point] for count, point in self._windows], "misses": self.misses}

    def restore(self, state: Mapping[str, object]) -> None:
        windows, misses = state["windows"], state["misses"]
        assert isinstance(windows, list)
        assert isinstance(misses, int)
        self._windows = [(int(count), Point(*(float(value) for value in values))) for count, *values in windows]
        self.misses = misses


class ConcurrencyMemory:
    """A point for each concurrency that was measured, and how often."""

    __slots__ = ("_points",)

    def __init__(self) -> None:
        self._points: dict[int, tuple[int, Point]] = {}

    def learn(self, point: Point) -> None:
        if point.concurrency <= 0:
            return
        bucket = _bucket(point.concurrency)
        known = self._points.get(bucket)
        if known is None:
            self._points[bucket] = (1, point)
            return
        count, old = known
        mixed = (before + WEIGHT * (now - before) for before, now in zip(old, point, strict=True))
        self._points[bucket] = (count + 1, Point(*mixed))

    def at(self, concurrency: float) -> Point | None:
        """None where too little is known."""
        if concurrency <= 0:
            return None
        count, point = self._points.get(_bucket(concurrency), (0, None))
        return point if count >= KNOWN else None

    def clear(self) -> None:
        self._points = {}

    def state(self) -> list[list[float]]:
        return [[bucket, count, *point] for bucket, (count, point) in self._points.items()]

    def restore(self, state: list[list[float]]) -> None:
        self._points = {
            int(bucket): (int(count), Point(*(float(value) for value in values))) for bucket, count, *values in state
        }


def _bucket(concurrency: float) -> int:
    return round(math.log(concurrency) / math.log(BUCKET))
