"""Rows with their answers, of which copies can be made that differ in one number.

The search for boundaries keeps one. A number is a cell: a column, or one place of a tensor's rows; its value is given
as an ordinal (`numbers.py`), so that cells of all dtypes are handled alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from steelyard.protocols.inputs import Inputs
from steelyard.runtimes.proof.layout import Hints, Layout, hints_of
from steelyard.runtimes.proof.numbers import from_ordinal, halfway, is_countable, near, ordinal

Places = NDArray[np.intp]
Ordinals = NDArray[np.int64]

_MAX_ROWS = 4096
_MAX_CELLS = 4096  # different numbers of a row that are varied; of a wider row a random choice
_MAX_VALUES = 4_000_000  # in the whole table


class Table:
    """`cells` has shape (cells, 2): the field's place in the layout and the place in its flattened row."""

    def __init__(self, layout: Layout, arrays: list[NDArray[Any]], answers: list[Any], cells: Places) -> None:
        self._layout, self._arrays, self.answers, self.cells = layout, arrays, answers, cells
        self.limit = max(16, min(_MAX_ROWS, _MAX_VALUES // max(1, layout.cells)))

    @classmethod
    def of(cls, layout: Layout, answered: list[tuple[Inputs, list[Any]]], rng: Generator) -> Table | None:
        """Of the rows that have all inputs; None when there are none, or no numbers in them."""
        names = tuple(field.name for field in layout.fields)
        whole = [(inputs.arrays, answers) for inputs, answers in answered if inputs.names == names]
        if not whole:
            return None
        form = _form(whole[0][0])
        whole = [item for item in whole if _form(item[0]) == form]
        arrays = [np.concatenate(parts) for parts in zip(*(item[0] for item in whole), strict=True)]
        answers = [answer for item in whole for answer in item[1]]
        cells = np.array(
            [
                (place, number)
                for place, array in enumerate(arrays)
                if is_countable(array.dtype)
                for number in range(min(_MAX_CELLS * 4, int(np.prod(array.shape[1:], dtype=np.int64))))
            ],
            dtype=np.intp,
        ).reshape(-1, 2)
        if not len(cells):
            return None
        if len(cells) > _MAX_CELLS:
            cells = cells[np.sort(rng.choice(len(cells), _MAX_CELLS, replace=False))]
        table = cls(layout, arrays, answers, cells)
        kept = rng.permutation(len(answers))[: table.limit]
        return cls(layout, [array[kept] for array in arrays], [answers[row] for row in kept], cells)

    @property
    def rows(self) -> int:
        return len(self.answers)

    def extend(self, inputs: Inputs, chosen: list[int], answers: list[Any]) -> None:
        """Add the rows `chosen` of `inputs`, up to the limit."""
        room = self.limit * 2 - self.rows
        chosen, answers = chosen[: max(0, room)], answers[: max(0, room)]
        pairs = zip(self._arrays, inputs.arrays, strict=True)
        self._arrays = [np.concatenate([mine, its[chosen]]) for mine, its in pairs]
        self.answers = self.answers + answers

    def ordinals(self, rows: Places, cells: Places) -> tuple[Ordinals, NDArray[np.bool_]]:
        """Of one cell per row; and whether it holds a finite number, which alone has an ordinal."""
        result = np.zeros(len(rows), dtype=np.int64)
        finite = np.ones(len(rows), dtype=bool)
        for group in self._groups(cells):
            values = group.array.reshape(self.rows, -1)[rows[group.where], group.places]
            good = np.isfinite(values)
            finite[group.where] = good
            result[group.where] = ordinal(np.where(good, values, np.zeros((), values.dtype)))
        return result, finite

    def varied(
        self, rows: Places, cells: Places, ordinals: Ordinals, missing: NDArray[np.bool_] | None = None
    ) -> Inputs:
        """Those rows, each with one cell replaced: by the number of that ordinal, or by NaN where `missing`."""
        arrays = [array[rows] for array in self._arrays]
        for group in self._groups(cells):
            values = from_ordinal(ordinals[group.where], group.array.dtype)
            if missing is not None and values.dtype.kind == "f":
                values = np.where(missing[group.where], np.array(np.nan, values.dtype), values)
            flat = arrays[group.field].reshape(len(rows), -1)
            flat[group.where, group.places] = values
            arrays[group.field] = flat.reshape(arrays[group.field].shape)
        return self._layout.inputs(arrays)

    def halfway(self, cells: Places, one: Ordinals, other: Ordinals) -> Ordinals:
        """Ordinals of the numbers half-way between two in value."""
        result = np.empty_like(one)
        for group in self._groups(cells):
            result[group.where] = halfway(one[group.where], other[group.where], group.array.dtype)
        return result

    def near(self, cells: Places, one: Ordinals, offsets: tuple[int, ...]) -> tuple[Places, Ordinals]:
        """Numbers near those of `one`: for each the place in `cells` that it belongs to, and its ordinal."""
        owners: list[Places] = []
        ordinals: list[Ordinals] = []
        for group in self._groups(cells):
            around = near(from_ordinal(one[group.where], group.array.dtype), offsets)
            owners.append(np.repeat(group.where, around.shape[1]))
            ordinals.append(ordinal(around.ravel()))
        pairs = np.unique(np.stack([np.concatenate(owners), np.concatenate(ordinals)], axis=1), axis=0)
        return pairs[:, 0].astype(np.intp), pairs[:, 1]

    def hinted(self, hints: Hints) -> tuple[Places, Ordinals]:
        """Cells and ordinals of all known thresholds."""
        cells: list[int] = []
        ordinals: list[int] = []
        for cell, (place, number) in enumerate(self.cells):
            known = hints_of(hints, self._layout.fields[place], int(number))
            numbers = [x for x in known if isinstance(x, int | float) and not isinstance(x, bool) and np.isfinite(x)]
            if numbers:
                dtype = self._arrays[place].dtype
                limits = np.iinfo(dtype) if dtype.kind in "iu" else np.finfo(dtype)
                inside = [x for x in numbers if float(limits.min) <= x <= float(limits.max)]
                ordinals += ordinal(np.unique(np.array(inside).astype(dtype))).tolist()
                cells += [cell] * (len(ordinals) - len(cells))
        return np.array(cells, dtype=np.intp), np.array(ordinals, dtype=np.int64)

    def _groups(self, cells: Places) -> Iterator[_Group]:
        """The given cells by the array that they are in."""
        fields = self.cells[cells, 0]
        for field in np.unique(fields):
            where = np.flatnonzero(fields == field)
            yield _Group(int(field), self._arrays[field], where, self.cells[cells[where], 1])


@dataclass(frozen=True, slots=True)
class _Group:
    field: int
    array: NDArray[Any]
    where: Places
    places: Places


def _form(arrays: tuple[NDArray[Any], ...]) -> list[tuple[Any, ...]]:
    return [(array.dtype, array.shape[1:]) for array in arrays]
