"""What a scikit-learn pipeline does to its columns before its last estimator, in plain numpy.

Compiled once from an artifact's `options["steps"]`, which `worker/export/pipeline.py` writes; called by the linear,
forest, lightgbm and xgboost runtimes for every query. It computes as scikit-learn does, operation by operation, so that
not even a rounding differs; it never imports it.

    steps     = [step, …]
    step      = {"kind": "subtract" | "divide" | "multiply" | "add", "array": NAME}
              | {"kind": "clip", "low": x, "high": y}
              | {"kind": "fill", "array": NAME, "keep": [places] | null}       NaN → one value per column
              | {"kind": "finite"}                                              refuse infinity
              | {"kind": "branches", "branches": [branch, …]}                   side by side
    branch    = {"columns": [places], "steps": [step, …]}
              | {"columns": [places], "codes": [code, …]}
    code      = {"values": [...], "missing": index | null, "numbers": bool}     one per column; index of each value
                + {"width": n, "drop": index | null, "ignore": bool}            one-hot
                | {"unknown": x | null}                                         ordinal; null refuses the unknown
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.errors import BadRequest
from steelyard.protocols.inputs import Inputs
from steelyard.runtimes.columns import Columns, refuse_unfit

Matrix = NDArray[Any]
Step = Callable[[Matrix], Matrix]
_F8 = np.dtype(np.float64)


class Steps:
    """Rows as a request gives them → the matrix that the last estimator takes, float64 (rows, width)."""

    def __init__(self, columns: Columns, steps: list[dict[str, Any]], arrays: dict[str, Matrix]) -> None:
        self._columns = columns
        self._branches: list[_Branch] | None = None
        if steps and steps[0]["kind"] == "branches":
            self._branches = [_Branch(branch, arrays, columns) for branch in steps[0]["branches"]]
            steps = steps[1:]
        self._steps = [_step(step, arrays) for step in steps]

    def matrix(self, inputs: Inputs, dtype: np.dtype[Any] = _F8) -> Matrix:
        """Raises BadRequest for what scikit-learn's own steps would refuse."""
        if self._branches is None:
            matrix = self._columns.matrix(inputs, dtype)
        else:
            given = self._columns.arrays(inputs)
            blocks = [branch.block(given, inputs.rows) for branch in self._branches]
            matrix = blocks[0] if len(blocks) == 1 else np.concatenate(blocks, axis=1)
        for step in self._steps:
            matrix = step(matrix)
        return matrix


class _Branch:
    def __init__(self, branch: dict[str, Any], arrays: dict[str, Matrix], columns: Columns) -> None:
        self._places: list[int] = branch["columns"]
        self._names = [str(columns.features[place]) for place in self._places] if columns.features else []
        self._codes = [_Code(code, name) for code, name in zip(branch.get("codes", ()), self._names, strict=False)]
        self._steps = [_step(step, arrays) for step in branch.get("steps", ())]

    def block(self, given: tuple[Matrix, ...], rows: int) -> Matrix:
        if self._codes:
            width = sum(code.width for code in self._codes)
            block = np.zeros((rows, width))
            start = 0
            for place, code in zip(self._places, self._codes, strict=True):
                code.write(given[place], block, start)
                start += code.width
            return block
        block = np.empty((rows, len(self._places)))
        for to, place in enumerate(self._places):
            if given[place].dtype.kind not in "biuf":
                raise BadRequest(f"The model takes numbers; column '{self._names[to]}' has none.")
            block[:, to] = given[place]
        for step in self._steps:
            block = step(block)
        return block


class _Code:
    """One categorical column: each value becomes a number (ordinal) or a one among zeros (one-hot)."""

    def __init__(self, code: dict[str, Any], name: str) -> None:
        self._name = name
        self._numbers: bool = code["numbers"]
        self._missing: int | None = code["missing"]
        self._places: dict[Any, int] = {value: place for place, value in enumerate(code["values"])}
        self._one_hot = "width" in code
        self.width: int = code.get("width", 1)
        self._drop: int | None = code.get("drop")
        self._ignore: bool = code.get("ignore", False)
        self._unknown: float | None = code.get("unknown")

    def write(self, values: Matrix, block: Matrix, start: int) -> None:
        if (values.dtype.kind in "biuf") is not self._numbers:
            kind = "numbers" if self._numbers else "text"
            raise BadRequest(f"The model takes {kind} in column '{self._name}'.", param=self._name)
        places, missing = self._places, self._missing
        for row, value in enumerate(values.tolist()):
            place = places.get(value)
            if place is None and (value is None or value != value):  # noqa: PLR0124  (NaN, which no dictionary finds)
                place = missing
            if self._one_hot:
                self._light(block, row, start, place)
            elif place is not None:
                block[row, start] = place
            elif self._unknown is not None:
                block[row, start] = self._unknown
            else:
                raise self._stranger()
            if self._numbers and value in (math.inf, -math.inf):
                raise BadRequest(f"The model takes no infinity; column '{self._name}' has one.", param=self._name)

    def _light(self, block: Matrix, row: int, start: int, place: int | None) -> None:
        if place is None:
            if not self._ignore:
                raise self._stranger()
        elif self._drop is None or place < self._drop:
            block[row, start + place] = 1.0
        elif place > self._drop:
            block[row, start + place - 1] = 1.0

    def _stranger(self) -> BadRequest:
        return BadRequest(f"The model knows no such category as one in column '{self._name}'.", param=self._name)


def _step(step: dict[str, Any], arrays: dict[str, Matrix]) -> Step:
    kind = step["kind"]
    if kind in _ARITHMETIC:
        operation, operand = _ARITHMETIC[kind], arrays[step["array"]]
        return lambda matrix: operation(matrix, operand)
    if kind == "clip":
        low, high = step["low"], step["high"]
        return lambda matrix: np.clip(matrix, low, high)
    if kind == "fill":
        return _fill(arrays[step["array"]], step["keep"])
    if kind == "finite":
        return _finite
    raise ValueError(f"no step {kind}")


_ARITHMETIC: dict[str, Callable[[Matrix, Matrix], Matrix]] = {
    "subtract": np.subtract,
    "divide": np.divide,
    "multiply": np.multiply,
    "add": np.add,
}


def _fill(values: Matrix, keep: list[int] | None) -> Step:
    def fill(matrix: Matrix) -> Matrix:
        _finite(matrix)
        if keep is not None:
            matrix = matrix.take(keep, axis=1)
        flat = matrix.ravel()
        if math.isfinite(np.vdot(flat, flat)):
            return matrix
        return np.where(np.isnan(matrix), values, matrix)

    return fill


def _finite(matrix: Matrix) -> Matrix:
    refuse_unfit(matrix, None, nan=True, infinite=False)
    return matrix
