"""From a row to the sum of its leaf values, as the library that grew the trees adds them up.

Used by the `forest` runtime. The walk in C knows all of these. LightGBM's library, which stands in for it, adds one
double per leaf itself; where a leaf has several values, or where XGBoost adds floats, it only finds the leaves and
numpy adds in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from steelyard.runtimes.evaluator import Evaluator, walked_or
from steelyard.runtimes.lightgbm_library import LEAVES, RAW, Trees
from steelyard.runtimes.tree_walk import walker

Matrix = NDArray[Any]
_CHUNK_ROWS = 256  # rows × trees × scores at once: some MB


class Sums(Protocol):
    def of(self, matrix: Matrix) -> Matrix:
        """(rows, features) → (rows, scores)."""

    def close(self) -> None: ...


class OwnSums:
    """Added tree by tree by the evaluator itself."""

    def __init__(self, trees: Evaluator) -> None:
        self.of = trees.predict
        self.close = trees.close


class VectorSums:
    """Several doubles per leaf: `values` (leaves of all trees, scores); tree t's begin at `first_leaf[t]`."""

    def __init__(self, trees: Trees, values: Matrix, first_leaf: Matrix) -> None:
        self._leaves = _Leaves(trees, first_leaf)
        self._values = values
        self.close = trees.close

    def of(self, matrix: Matrix) -> Matrix:
        if len(matrix) <= _CHUNK_ROWS:
            return self._chunk(matrix)
        starts = range(0, len(matrix), _CHUNK_ROWS)
        return np.concatenate([self._chunk(matrix[start : start + _CHUNK_ROWS]) for start in starts])

    def _chunk(self, matrix: Matrix) -> Matrix:
        sums: Matrix = np.add.reduce(self._values.take(self._leaves.of(matrix), axis=0), axis=1)  # tree by tree
        return sums


class FloatSums:
    """One float per leaf, added in single precision, tree by tree. `values` (leaves of all trees,); tree t counts for
    score `score[t]`, and what a score starts from is a tree of one leaf."""

    def __init__(self, trees: Trees, values: Matrix, first_leaf: Matrix, score: Matrix) -> None:
        self._leaves = _Leaves(trees, first_leaf)
        self._values = values
        self._trees_of = [np.flatnonzero(score == place) for place in range(int(score.max()) + 1)]
        self.close = trees.close

    def of(self, matrix: Matrix) -> Matrix:
        if len(matrix) <= _CHUNK_ROWS:
            return self._chunk(matrix)
        starts = range(0, len(matrix), _CHUNK_ROWS)
        return np.concatenate([self._chunk(matrix[start : start + _CHUNK_ROWS]) for start in starts])

    def _chunk(self, matrix: Matrix) -> Matrix:
        values = self._values.take(self._leaves.of(matrix))
        if len(self._trees_of) == 1:
            return np.add.accumulate(values, axis=1)[:, -1:]  # one after the other; `sum` would go pairwise
        each = [np.add.accumulate(values.take(trees, axis=1), axis=1)[:, -1] for trees in self._trees_of]
        return np.stack(each, axis=1)


class _Leaves:
    """Places of each row's leaves in a table of all trees' leaves."""

    def __init__(self, trees: Trees, first_leaf: Matrix) -> None:
        self._trees = trees
        self._first_leaf = first_leaf.astype(np.float64)  # what the evaluator's leaf numbers are

    def of(self, matrix: Matrix) -> NDArray[np.intp]:
        leaves = self._trees.predict(matrix)
        leaves += self._first_leaf
        return leaves.astype(np.intp)


def sums_of(library: Callable[[], str], model: Path, options: dict[str, Any], arrays: dict[str, Matrix]) -> Sums:
    """As the artifact's `options["sum"]` says: "double", "vector" or "float". `library` says where LightGBM's is.

    Raises ModelLoadError."""
    kind: str = options["sum"]
    return walked_or(
        lambda: OwnSums(walker.converted(model, kind, arrays)), lambda: _by_library(library(), model, kind, arrays)
    )


def _by_library(library: str, model: Path, kind: str, arrays: dict[str, Matrix]) -> Sums:
    if kind == "double":
        return OwnSums(Trees(library, model, RAW))
    trees = Trees(library, model, LEAVES)
    if kind == "vector":
        return VectorSums(trees, arrays["values"], arrays["first_leaf"])
    return FloatSums(trees, arrays["values"], arrays["first_leaf"], arrays["score"])
