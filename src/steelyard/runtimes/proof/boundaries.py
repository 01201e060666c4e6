"""Finds where the reference's answer jumps when one number changes, and asks it for the numbers right there.

A tree that compares in float32 instead of float64, with < instead of ≤, with a threshold that is one representable
number off, or that sends a missing value the other way differs from the reference on no likely row; it does differ
beside that threshold. The search knows nothing of the model but its answers: it changes one number of a row until the
answer changes, halves the interval down to two neighbouring numbers, in many rows at once, and then asks for the
numbers on both sides, their float32 roundings, and a missing value in the same place.

It cannot promise to meet every threshold: what no row reaches within its calls stays unseen. Thresholds that an
exporter names (`hints`) are asked directly, in several rows each. Smooth answers have no jumps; they cost some
forty calls, and then only labels beside them are searched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from steelyard.protocols.inputs import Inputs
from steelyard.runtimes.proof.asking import Asker, Case, answered_rows
from steelyard.runtimes.proof.layout import Hints, Layout
from steelyard.runtimes.proof.numbers import middle
from steelyard.runtimes.proof.signatures import labels_of, signatures
from steelyard.runtimes.proof.table import Ordinals, Places, Table

_HINTED = 32  # calls beside thresholds that are known
_VARIATIONS = 24  # calls that look for changes
_MIXED_ROUNDS = 16  # halvings by turns in value and in count; whose near end never moved by then is smooth
_ROUNDS = 64 + _MIXED_ROUNDS // 2  # halvings that leave two neighbours
_PROBES = 16  # calls beside the boundaries of one sweep
_MIN_SWEEP = 40  # calls that a further sweep is worth starting with
_HALVINGS = 6  # for a refused call: the proof's own rows have shown which rows are refused
_MAX_CALL_CELLS = 400_000

Signature = Callable[[list[Any], int], list[Any]]


@dataclass(frozen=True, slots=True)
class Segments:
    """In the table's row, between two ordinals of one cell, the answer changes. One entry per segment."""

    rows: Places
    cells: Places
    near: Ordinals  # where the answer is that of the row
    far: Ordinals
    groups: Places  # same for the same change of answer in the same cell

    def take(self, chosen: NDArray[Any]) -> Segments:
        return Segments(*(column[chosen] for column in self._columns()))

    @staticmethod
    def joined(parts: list[Segments]) -> Segments:
        columns = zip(*(part._columns() for part in parts), strict=True)
        return Segments(*(np.concatenate(column) for column in columns))

    def _columns(self) -> tuple[NDArray[Any], ...]:
        return self.rows, self.cells, self.near, self.far, self.groups

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class Boundaries:
    """`cases`: rows beside boundaries, and those that led there. `found`: how many boundaries."""

    cases: list[Case]
    found: int


def find_boundaries(
    asker: Asker, answered: list[Case], layout: Layout, hints: Hints, *, rng: Generator, rows_per_call: int = 512
) -> Boundaries:
    """At most `asker.calls` calls. `answered`: cases to start from; only rows that have all inputs are used."""
    if layout.fixed_rows is not None:
        return Boundaries([], 0)
    table = Table.of(layout, [(case.inputs, answers) for case, answers in answered_rows(answered)], rng)
    if table is None:
        return Boundaries([], 0)
    bits = max(case.expected.float_bits for case in answered)
    size = max(16, min(rows_per_call, _MAX_CALL_CELLS // max(1, layout.cells)))
    search = _Search(asker, table, bits, rng, size)
    known = table.hinted(hints)
    kept = min(_HINTED, asker.calls) if len(known[0]) else 0
    asker.calls -= kept
    if not search.run(signatures) and any(labels_of(table.answers[:64], bits)):
        search.run(labels_of)
    asker.calls += kept
    search.beside(*known)
    return Boundaries(search.cases, search.found)


class _Search:
    def __init__(self, asker: Asker, table: Table, float_bits: int, rng: Generator, size: int) -> None:
        self._asker, self._table, self._bits, self._rng, self._size = asker, table, float_bits, rng, size
        self.cases: list[Case] = []
        self.found = 0

    def beside(self, cells: Places, ordinals: Ordinals) -> None:
        """Every known threshold and its neighbours in a row of a rare answer; in other rows again while calls last."""
        if not len(cells):
            return
        owners, near = self._table.near(cells, ordinals, (-1, 0, 1))
        keys = signatures(self._table.answers, self._bits)
        while self._asker.calls:
            order = self._rng.permutation(len(owners))
            for start in range(0, len(order), self._size):
                chosen = order[start : start + self._size]
                rows = self._rows(keys, len(chosen))
                self._keep(self._table.varied(rows, cells[owners[chosen]], near[chosen]))

    def run(self, signature: Signature) -> bool:
        """Finds and probes boundaries. False when the answers turn out to be smooth."""
        segments = self._changes(signature)
        smooth = False
        while len(segments) and self._asker.calls > _MIN_SWEEP and not smooth:
            chosen = self._spread(segments)
            ends = self._halve(segments.take(chosen), signature)
            smooth = len(ends) * 8 < len(chosen)
            self.found += len(ends)
            self._probe(ends)
            segments = segments.take(np.setdiff1d(np.arange(len(segments)), chosen))
        return not smooth

    def _changes(self, signature: Signature) -> Segments:
        """Rows in which one number was replaced by another row's, and the answer changed. New answers are new rows."""
        table, rng = self._table, self._rng
        found = [Segments(*(np.empty(0, dtype=np.int64) for _ in range(5)))]
        groups: dict[Any, int] = {}
        keys = signature(table.answers, self._bits)
        seen = set(keys)
        cells = np.empty(0, dtype=np.intp)
        for _ in range(_VARIATIONS):
            while len(cells) < self._size:
                cells = np.concatenate([cells, rng.permutation(len(table.cells))])
            turn, cells = cells[: self._size], cells[self._size :]
            rows, others = self._rows(keys, self._size), rng.integers(table.rows, size=self._size)
            before, finite = table.ordinals(rows, turn)
            after, finite_too = table.ordinals(others, turn)
            useful = np.flatnonzero(finite & finite_too & (before != after))
            if not len(useful) or self._asker.calls <= _PROBES:
                break
            rows, turn = rows[useful], turn[useful]
            inputs = table.varied(rows, turn, after[useful])
            answers = self._keep(inputs)
            old, new = self._signed(rows, signature), signature(answers, self._bits)
            changes = zip(turn.tolist(), old, new, strict=True)
            group = np.array([groups.setdefault(change, len(groups)) for change in changes])
            changed = [row for row, key in enumerate(new) if key is not None and key != old[row]]
            found.append(Segments(rows, turn, before[useful], after[useful], group).take(np.array(changed, np.intp)))
            novel = [row for row in changed if new[row] not in seen]
            seen.update(new)
            keys += [new[row] for row in novel]
            table.extend(inputs, novel, [answers[row] for row in novel])
        return Segments.joined(found)

    def _rows(self, keys: list[Any], count: int) -> Places:
        """Rows of the table, those of every answer equally often: a leaf that few rows reach gets its turn."""
        frequency = Counter(keys[: self._table.rows])
        weights = np.array([1 / frequency[key] for key in keys[: self._table.rows]])
        chosen: Places = self._rng.choice(len(weights), size=count, p=weights / weights.sum())
        return chosen

    def _signed(self, rows: Places, signature: Signature) -> list[Any]:
        return signature([self._table.answers[row] for row in rows], self._bits)

    def _spread(self, segments: Segments) -> Places:
        """As many as fit a call: every change of answer once before any twice, and all cells alike."""
        order = self._rng.permutation(len(segments))
        by_group, by_cell = _ranks(segments.groups[order]), _ranks(segments.cells[order])
        chosen: Places = order[np.lexsort((by_cell, by_group))][: self._size]
        return chosen

    def _halve(self, segments: Segments, signature: Signature) -> Segments:
        """Down to neighbouring numbers, all at once; without the segments in which every step is a change."""
        near, far = segments.near.copy(), segments.far.copy()
        old = self._signed(segments.rows, signature)
        moved = np.zeros(len(segments), dtype=bool)
        active = np.arange(len(segments))
        for turn in range(_ROUNDS):
            centre = middle(near, far)
            if turn >= _MIXED_ROUNDS:
                active = active[moved[active]]
            elif turn % 2 == 0:
                centre = self._table.halfway(segments.cells, near, far)
            active = active[(middle(near, far) != np.minimum(near, far))[active]]
            if not len(active) or self._asker.calls <= _PROBES:
                break
            inputs = self._table.varied(segments.rows[active], segments.cells[active], centre[active])
            keys = signature(self._answers(self._asker.ask(inputs, _HALVINGS), inputs.rows), self._bits)
            same = np.array([key == old[place] for key, place in zip(keys, active, strict=True)])
            near[active[same]] = centre[active[same]]
            far[active[~same]] = centre[active[~same]]
            moved[active[same]] = True
        adjacent = middle(near, far) == np.minimum(near, far)
        halved = Segments(segments.rows, segments.cells, near, far, segments.groups)
        return halved.take(np.flatnonzero(moved | adjacent))

    def _probe(self, ends: Segments) -> None:
        """Asks beside each boundary, and with a missing value in its place."""
        if not len(ends):
            return
        owners, ordinals = self._table.near(ends.cells, ends.near, (-4, -2, -1, 0, 1, 2, 4))
        more_owners, more = self._table.near(ends.cells, ends.far, (0,))
        places = np.arange(len(ends))
        owners, ordinals = np.concatenate([places, owners, more_owners]), np.concatenate([ends.near, ordinals, more])
        missing = np.zeros(len(owners), dtype=bool)
        missing[: len(places)] = True
        for start in range(0, len(owners), self._size):
            part = slice(start, start + self._size)
            chosen = owners[part]
            self._keep(self._table.varied(ends.rows[chosen], ends.cells[chosen], ordinals[part], missing[part]))

    def _keep(self, inputs: Inputs) -> list[Any]:
        cases = self._asker.ask(inputs, _HALVINGS)
        self.cases += cases
        return self._answers(cases, inputs.rows)

    @staticmethod
    def _answers(cases: list[Case], rows: int) -> list[Any]:
        """One per row; None for those that were refused or not asked."""
        answers: list[Any] = []
        for case in cases:
            answers += case.answers or [None] * case.inputs.rows
        return (answers + [None] * rows)[:rows]


def _ranks(values: Places) -> Places:
    """For each how often the same value stands before it."""
    counts: Counter[int] = Counter()
    ranks = np.empty(len(values), dtype=np.intp)
    for place, value in enumerate(values.tolist()):
        ranks[place] = counts[value]
        counts[value] += 1
    return ranks
