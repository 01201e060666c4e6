"""A heap from which anything can be taken out, wherever it stands: what is least, with removal in O(1).

The queues of `fair_queue.py` and `fair_share.py` keep their orders in it. An entry is known by the number that `push`
gave it; one that was taken out stays as garbage until it surfaces or garbage outweighs what lives, so that the heap is
never longer than twice what lives and `_SLACK`. Equal keys come out in the order in which they went in.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

T = TypeVar("T")

NONE: Final = -1  # the number of no entry
_SLACK: Final = 16


class LazyHeap(Generic[T]):
    """All operations are O(log n), amortised. False when nothing lives in it."""

    __slots__ = ("_heap", "_lives", "_number")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []
        self._lives: dict[int, T] = {}
        self._number = 0

    def __len__(self) -> int:
        return len(self._lives)

    @property
    def length(self) -> int:
        """Entries that memory is held for, garbage included."""
        return len(self._heap)

    def push(self, key: float, value: T) -> int:
        """Put `value` in. The result is the number to take it out by."""
        self._number += 1
        number = self._number
        self._lives[number] = value
        heappush(self._heap, (key, number))
        return number

    def remove(self, number: int) -> None:
        """Take an entry out. Raises KeyError when it is not in."""
        del self._lives[number]
        lives = self._lives
        if not lives:
            self._heap = []
        elif len(self._heap) > 2 * len(lives) + _SLACK:
            self._heap = [entry for entry in self._heap if entry[1] in lives]
            heapify(self._heap)

    def first(self) -> T | None:
        """What has the least key, left in its place; None when nothing lives."""
        heap, lives = self._heap, self._lives
        while heap:
            value = lives.get(heap[0][1])
            if value is not None:
                return value
            heappop(heap)
        return None
