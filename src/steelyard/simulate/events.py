"""The queue of what happens next, in the order of time, and of being asked for where the times are the same.

Replicas and the simulated router put calls in, `run` makes them. It draws no random numbers: the same calls in give the
same calls out. An event cannot be taken back; whoever may change its mind gives a number and ignores the old one.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from steelyard.simulate.clock import VirtualClock


class EventQueue:
    """Calls of `action(argument)` at a time."""

    __slots__ = ("_heap", "_order", "clock", "handled")

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.handled = 0
        self._heap: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self._order = 0

    def at(self, time_s: float, action: Callable[[Any], None], argument: Any = None) -> None:
        """Raises ValueError for a time that has passed."""
        if time_s < self.clock.now_s:
            raise ValueError(f"An event at {time_s} s cannot be arranged at {self.clock.now_s} s.")
        self._order += 1  # breaks ties, so that actions are never compared
        heappush(self._heap, (time_s, self._order, action, argument))

    def run(self, until_s: float = float("inf")) -> None:
        """Handle everything up to and including `until_s`, in order."""
        heap, clock = self._heap, self.clock
        while heap and heap[0][0] <= until_s:
            time_s, _, action, argument = heappop(heap)
            clock.now_s = time_s  # never earlier than before: `at` refuses that
            self.handled += 1
            action(argument)

    def __len__(self) -> int:
        return len(self._heap)
