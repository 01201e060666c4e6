"""A request's typed rows, as every dialect decodes them and every runtime takes them.

Made by the decoders (`mlflow/`, `open_inference/`), joined and split by the batcher, read by the runtimes. It knows
neither JSON nor pandas. Arrays are never changed once they are in an `Inputs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Name = str | int | None  # of a column or tensor; an int is a place, None the only unnamed tensor


@dataclass(slots=True)
class Inputs:
    """Rows first: a column has shape (rows,), a tensor (rows, …).

    Either `matrix` holds all columns as one C-contiguous (rows, len(names)) array, when they share a numeric dtype, or
    `parts` holds one array per name. `columnar` tells a table (a frame to pandas models) from tensors (bare arrays).
    `index` is the frame's row labels, where a request gave any.
    """

    names: tuple[Name, ...]
    rows: int
    matrix: NDArray[Any] | None = None
    parts: tuple[NDArray[Any], ...] = ()
    columnar: bool = True
    index: list[Any] | None = None

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """One array per name; columns of a matrix are views."""
        if self.matrix is None:
            return self.parts
        return tuple(self.matrix[:, place] for place in range(len(self.names)))

    def as_matrix(self, dtype: Any) -> NDArray[Any]:
        """All columns as one C-contiguous (rows, columns) array. Raises ValueError or TypeError if they don't fit."""
        if self.matrix is not None:
            return np.ascontiguousarray(self.matrix, dtype=dtype)
        if len(self.parts) == 1 and self.parts[0].ndim == 2:
            return np.ascontiguousarray(self.parts[0], dtype=dtype)
        result = np.empty((self.rows, len(self.parts)), dtype=dtype)
        for place, part in enumerate(self.parts):
            result[:, place] = part
        return result

    def take(self, start: int, stop: int) -> Inputs:
        """Rows `start` to `stop`, as views."""
        return Inputs(
            self.names,
            stop - start,
            None if self.matrix is None else self.matrix[start:stop],
            tuple(part[start:stop] for part in self.parts),
            self.columnar,
            None if self.index is None else self.index[start:stop],
        )


def join(items: Sequence[Inputs]) -> Inputs | None:
    """One after the other, without row labels; None when their names, dtypes or row shapes differ, or when a tensor has
    not as many rows as its request, so that nobody could split the answer."""
    first = items[0]
    for item in items:
        if any(part.ndim == 0 or len(part) != item.rows for part in item.parts):
            return None
        if item.names != first.names or item.columnar is not first.columnar or not _alike(item, first):
            return None
    rows = sum(item.rows for item in items)
    if first.matrix is not None:
        return Inputs(first.names, rows, np.concatenate([item.matrix for item in items]), (), first.columnar)
    places = range(len(first.parts))
    parts = tuple(np.concatenate([item.parts[place] for item in items]) for place in places)
    return Inputs(first.names, rows, None, parts, first.columnar)


def _alike(one: Inputs, other: Inputs) -> bool:
    if one.matrix is not None and other.matrix is not None:
        return one.matrix.dtype == other.matrix.dtype
    if one.matrix is not None or other.matrix is not None or len(one.parts) != len(other.parts):
        return False
    pairs = zip(one.parts, other.parts, strict=True)
    return all(mine.dtype == its.dtype and mine.shape[1:] == its.shape[1:] for mine, its in pairs)


@dataclass(frozen=True, slots=True)
class Records:
    """A runtime's answer that is a table: rendered as one object per row. Arrays are rows first, one per name."""

    names: tuple[str, ...]
    arrays: tuple[NDArray[Any], ...]


Outputs = NDArray[Any] | dict[str, NDArray[Any]] | Records
"""What a vectorised runtime returns: every array is rows first."""
