"""Finds where the reference's answer jumps when one number changes, and asks it for the numbers right there.

A tree that compares in float32 instead of float64, with < instead of ≤, with a threshold that is one representable
number off, or that sends a missing value the other way differs from the reference on no likely row; it does differ
beside that threshold. The search knows nothing of the model but its answers: it changes one number of a row until the
answer changes, halves the interval down to two neighbouring numbers, in many rows at once, and then asks for the
numbers on both sides, their float32 roundings, and a missing value in the same place.

Where an exporter names a model's thresholds (`hints`), further intervals are halved over these alone, which takes a
tenth of the calls, and each threshold is asked in rows of different answers. Hints only ever add to the search.

It cannot promise to meet every threshold: what no row reaches within its calls stays unseen. Smooth answers have no
jumps; they cost some forty calls, and then only labels beside them are searched.
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
from steelyard.runtimes.proof.segments import ROUNDS, ByHint, ByNumber, Known, Segments, spread
from steelyard.runtimes.proof.signatures import labels_of, signatures
from steelyard.runtimes.proof.table import Ordinals, Places, Table

_VARIATIONS = 24  # calls that look for changes
_PROBES = 16  # calls kept for what lies beside the boundaries of one sweep
_MIN_SWEEP = ROUNDS  # calls that a sweep down to neighbouring numbers is worth starting with
_MIN_HINTED = 24  # and one over the hints
_HINTED = 24  # calls beside thresholds in rows of any answer
_HALVINGS = 6  # for a refused call: the proof's own rows have shown which rows are refused
_MAX_CALL_CELLS = 400_000

Signature = Callable[[list[Any], int], list[Any]]


@dataclass(frozen=True, slots=True)
class Boundaries:
    """`cases`: rows beside boundaries, and those that led there. `found`: how many different boundaries, without those
    of which only the surroundings were asked."""

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
    cells, ordinals = table.hinted(hints)
    known = Known()
    known.add(cells, ordinals)
    kept = min(_HINTED, asker.calls) if len(cells) else 0
    asker.calls -= kept
    if not search.run(signatures, known) and any(labels_of(table.answers[:64], bits)):
        search.run(labels_of, known)
    asker.calls += kept
    search.beside(cells, ordinals)
    return Boundaries(search.cases, len(search.found))


class _Search:
    def __init__(self, asker: Asker, table: Table, float_bits: int, rng: Generator, size: int) -> None:
        self._asker, self._table, self._bits, self._rng, self._size = asker, table, float_bits, rng, size
        self.cases: list[Case] = []
        self.found: set[tuple[int, int]] = set()  # cell and ordinal

    def beside(self, cells: Places, ordinals: Ordinals) -> None:
        """Every known threshold and its neighbours in a row of a rare answer; in other rows again while calls last."""
        if not len(cells):
            return
        owners, near = self._table.near(cells, ordinals, (-1, 0, 1))
        weights = _weights(signatures(self._table.answers, self._bits)[: self._table.rows])
        while self._asker.calls:
            order = self._rng.permutation(len(owners))
            for start in range(0, len(order), self._size):
                if not self._asker.calls:
                    return
                chosen = order[start : start + self._size]
                rows = self._rng.choice(len(weights), size=len(chosen), p=weights)
                self._keep(self._table.varied(rows, cells[owners[chosen]], near[chosen]))

    def run(self, signature: Signature, hints: Known) -> bool:
        """Finds and probes boundaries. False when the answers turn out to be smooth.

        The first sweep does not rely on hints, for they come from whoever made the candidates.
        """
        segments = self._changes(signature, hints)
        met = Known()
        by_hint, calls = False, _MIN_SWEEP
        while len(segments) and self._asker.calls > calls:
            chosen = spread(segments, met, self._size, self._rng)
            part = segments.take(chosen)
            segments = segments.without(chosen)
            ends, moved = self._halve(part, signature, ByHint(hints) if by_hint else ByNumber(self._table))
            if not by_hint:
                ends = ends.take(np.flatnonzero(moved | ends.adjacent))
                if len(ends) * 8 < len(part):
                    return False
            met.add(ends.cells, ends.near)
            self._probe(ends, signature)
            if hints:
                by_hint, calls = True, _MIN_HINTED
        return True

    def _changes(self, signature: Signature, hints: Known) -> Segments:
        """Rows in which one number was replaced by another row's, and the answer changed. New answers are new rows.

        With hints every other call steps over one of them instead, which seldom leaves the leaf's surroundings.
        """
        table, rng = self._table, self._rng
        found = [Segments.none()]
        groups: dict[Any, int] = {}
        keys = signature(table.answers, self._bits)
        seen = set(keys)
        cells = np.empty(0, dtype=np.intp)
        for number in range(_VARIATIONS):
            while len(cells) < self._size:
                cells = np.concatenate([cells, rng.permutation(len(table.cells))])
            turn, cells = cells[: self._size], cells[self._size :]
            rows, others = self._rows(keys, self._size), rng.integers(table.rows, size=self._size)
            before, finite = table.ordinals(rows, turn)
            after, finite_too = table.ordinals(others, turn)
            if number % 2:
                after = hints.beyond(turn, before, after, rng)
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
        weights = _weights(keys[: self._table.rows])
        chosen: Places = self._rng.choice(len(weights), size=count, p=weights)
        return chosen

    def _signed(self, rows: Places, signature: Signature) -> list[Any]:
        return signature([self._table.answers[row] for row in rows], self._bits)

    def _halve(
        self, segments: Segments, signature: Signature, way: ByNumber | ByHint
    ) -> tuple[Segments, NDArray[np.bool_]]:
        """All at once, as far as that way goes; and the segments of which the near end has moved."""
        old = self._signed(segments.rows, signature)
        moved = np.zeros(len(segments), dtype=bool)
        for turn in range(ROUNDS):
            centre, active = way.centres(turn, segments, moved)
            if not len(active) or self._asker.calls <= _PROBES:
                break
            inputs = self._table.varied(segments.rows[active], segments.cells[active], centre[active])
            keys = signature(self._answers(self._asker.ask(inputs, _HALVINGS), inputs.rows), self._bits)
            same = np.array([key == old[place] for key, place in zip(keys, active, strict=True)])
            segments = segments.moved(active, centre[active], same)
            moved[active[same]] = True
        return segments, moved

    def _probe(self, ends: Segments, signature: Signature) -> None:
        """Asks beside each boundary, and with a missing value in its place."""
        places = np.arange(len(ends))
        owners, ordinals = [places], [ends.near]
        for chosen, number, offsets in (
            (places, ends.near, (-2, -1, 0, 1, 2)),
            (np.flatnonzero(ends.adjacent), ends.near, (-4, 4)),
            (np.flatnonzero(~ends.adjacent), ends.far, (-2, -1, 0, 1, 2)),
        ):
            if len(chosen):
                owner, near = self._table.near(ends.cells[chosen], number[chosen], offsets)
                owners.append(chosen[owner])
                ordinals.append(near)
        rows, numbers = np.concatenate(owners), np.concatenate(ordinals)
        missing = np.arange(len(rows)) < len(places)
        answers: list[Any] = []
        for start in range(0, len(rows), self._size):
            part = slice(start, start + self._size)
            chosen = rows[part]
            if not self._asker.calls:
                answers += [None] * len(chosen)
                continue
            answers += self._keep(
                self._table.varied(ends.rows[chosen], ends.cells[chosen], numbers[part], missing[part])
            )
        self._count(ends, rows[len(places) :], signature(answers, self._bits)[len(places) :])

    def _count(self, ends: Segments, owners: Places, keys: list[Any]) -> None:
        """A boundary was found where two neighbouring numbers have different answers."""
        adjacent = ends.adjacent
        first: dict[int, Any] = {}
        for owner, key in zip(owners.tolist(), keys, strict=True):
            if adjacent[owner] and first.setdefault(owner, key) != key:
                self.found.add((int(ends.cells[owner]), int(min(ends.near[owner], ends.far[owner]))))

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


def _weights(keys: list[Any]) -> NDArray[np.float64]:
    """By which each key is as likely as any other, however many rows have it."""
    frequency = Counter(keys)
    weights = np.array([1 / frequency[key] for key in keys])
    shares: NDArray[np.float64] = weights / weights.sum()
    return shares
