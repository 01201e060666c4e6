"""Intervals of one number in which a model's answer changes, and where to ask next to find out where.

The search for boundaries halves many of them at once; what is asked there is decided here, by arithmetic alone.
"""

from __future__ import annotations

import bisect
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from steelyard.runtimes.proof.numbers import middle
from steelyard.runtimes.proof.table import Ordinals, Places, Table

MIXED_ROUNDS = 16  # halvings by turns in value and in count; whose near end never moved by then is smooth
ROUNDS = 64 + MIXED_ROUNDS // 2  # halvings that leave two neighbours


@dataclass(frozen=True, slots=True)
class Segments:
    """In the table's row, between two ordinals of one cell, the answer changes. One entry per segment."""

    rows: Places
    cells: Places
    near: Ordinals  # where the answer is that of the row
    far: Ordinals
    groups: Places  # same for the same change of answer in the same cell

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, chosen: NDArray[Any]) -> Segments:
        return Segments(*(column[chosen] for column in self._columns()))

    def without(self, chosen: Places) -> Segments:
        return self.take(np.setdiff1d(np.arange(len(self)), chosen))

    def moved(self, places: Places, to: Ordinals, same: NDArray[np.bool_]) -> Segments:
        """With one end of each of those at `to`: the near one where the answer there is still the row's."""
        near, far = self.near.copy(), self.far.copy()
        near[places[same]] = to[same]
        far[places[~same]] = to[~same]
        return replace(self, near=near, far=far)

    @property
    def adjacent(self) -> NDArray[np.bool_]:
        """Nothing lies between the ends."""
        result: NDArray[np.bool_] = middle(self.near, self.far) == np.minimum(self.near, self.far)
        return result

    @staticmethod
    def joined(parts: list[Segments]) -> Segments:
        columns = zip(*(part._columns() for part in parts), strict=True)
        return Segments(*(np.concatenate(column) for column in columns))

    @staticmethod
    def none() -> Segments:
        return Segments(*(np.empty(0, dtype=np.int64) for _ in range(5)))

    def _columns(self) -> tuple[NDArray[Any], ...]:
        return self.rows, self.cells, self.near, self.far, self.groups


class Known:
    """Ordinals of each cell, in order: thresholds that were named, or boundaries that were met."""

    def __init__(self) -> None:
        self._places: dict[int, list[int]] = {}

    def add(self, cells: Places, ordinals: Ordinals) -> None:
        for cell, place in zip(cells.tolist(), ordinals.tolist(), strict=True):
            bisect.insort(self._places.setdefault(cell, []), place)

    def __bool__(self) -> bool:
        return bool(self._places)

    def beyond(self, cells: Places, ordinals: Ordinals, otherwise: Ordinals, rng: Generator) -> Ordinals:
        """For each number one with a single known place between, above or below; `otherwise` where there is none."""
        result = otherwise.copy()
        upward = rng.random(len(cells)) < 0.5
        for row, (cell, place) in enumerate(zip(cells.tolist(), ordinals.tolist(), strict=True)):
            known = self._places.get(cell, [])
            to = bisect.bisect_right(known, place) + 1 if upward[row] else bisect.bisect_left(known, place) - 2
            if 0 <= to < len(known):
                result[row] = known[to]
        return result

    def between(self, ends: Segments) -> list[list[int]]:
        """For each segment what is known strictly between its ends."""
        low, high = np.minimum(ends.near, ends.far).tolist(), np.maximum(ends.near, ends.far).tolist()
        found = []
        for cell, lowest, highest in zip(ends.cells.tolist(), low, high, strict=True):
            known = self._places.get(cell, [])
            found.append(known[bisect.bisect_right(known, lowest) : bisect.bisect_left(known, highest)])
        return found


def spread(segments: Segments, met: Known, size: int, rng: Generator) -> Places:
    """At most `size` of them. Those that cross no boundary already met go first, for it may be that one again; then
    every change of answer once before any twice, and all cells alike."""
    order = rng.permutation(len(segments))
    crossing = np.array([bool(places) for places in met.between(segments)])[order]
    by_group, by_cell = _ranks(segments.groups[order]), _ranks(segments.cells[order])
    chosen: Places = order[np.lexsort((by_cell, by_group, crossing))][:size]
    return chosen


class ByNumber:
    """Halves down to neighbouring numbers. Gives up those in which every step is a change: there it is smooth."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def centres(self, turn: int, ends: Segments, moved: NDArray[np.bool_]) -> tuple[Ordinals, Places]:
        """Where to ask, for each segment; and the segments that are not done."""
        open_ = ~ends.adjacent & (moved | (turn < MIXED_ROUNDS))
        if turn < MIXED_ROUNDS and turn % 2 == 0:
            return self._table.halfway(ends.cells, ends.near, ends.far), np.flatnonzero(open_)
        return middle(ends.near, ends.far), np.flatnonzero(open_)


class ByHint:
    """Halves over the thresholds that are known, down to two that are neighbours: in a few steps."""

    def __init__(self, known: Known) -> None:
        self._known = known

    def centres(self, turn: int, ends: Segments, moved: NDArray[np.bool_]) -> tuple[Ordinals, Places]:
        """Where to ask, for each segment; and the segments that are not done."""
        between = self._known.between(ends)
        centre = np.array([places[len(places) // 2] if places else 0 for places in between], dtype=np.int64)
        return centre, np.array([place for place, places in enumerate(between) if places], dtype=np.intp)


def _ranks(values: Places) -> Places:
    """For each how often the same value stands before it."""
    counts: Counter[int] = Counter()
    ranks = np.empty(len(values), dtype=np.intp)
    for place, value in enumerate(values.tolist()):
        ranks[place] = counts[value]
        counts[value] += 1
    return ranks
