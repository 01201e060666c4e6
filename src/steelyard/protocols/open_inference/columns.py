"""One tensor as one column of a signature, by the one coercion table.

Called by `decode.py`. Numbers that fit go over as arrays; what does not is handed to `mlflow/coerce.py` value by
value, so that a refusal says the same as in every other format.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.protocols.mlflow.coerce import coerce_column
from steelyard.protocols.mlflow.schema import Column, ColumnType
from steelyard.protocols.open_inference.datatypes import fit
from steelyard.protocols.open_inference.elements import binaries, parsed, texts
from steelyard.protocols.open_inference.tensors import objects

NUMERIC: dict[ColumnType, np.dtype[Any]] = {
    ColumnType.INTEGER: np.dtype(np.int32),
    ColumnType.LONG: np.dtype(np.int64),
    ColumnType.FLOAT: np.dtype(np.float32),
    ColumnType.DOUBLE: np.dtype(np.float64),
}


def as_column(column: Column, label: str, array: NDArray[Any], content_type: str | None) -> NDArray[Any] | None:
    """The array, rows first, in the column's type; None for an optional column without any value, which is an absent
    one. Raises InvalidParameter naming `label`, and the row where there is one."""
    if not column.required and _is_missing(array):
        return None
    wanted = NUMERIC.get(column.type)
    if wanted is not None:
        fitting = fit(array, wanted)
        if fitting is not None:
            return fitting
    elif column.type is ColumnType.BOOLEAN and array.dtype.kind == "b":
        return array
    values = _values(column, label, array, content_type)
    if column.type is ColumnType.OTHER:
        return objects(values)
    if column.type is ColumnType.BINARY:
        return _binary(column, label, values)
    return coerce_column(column, label, values)


def _is_missing(array: NDArray[Any]) -> bool:
    if array.dtype.kind == "f":
        return bool(np.isnan(array).all())
    return array.dtype.kind == "O" and all(value is None for value in array.ravel().tolist())


def _values(column: Column, label: str, array: NDArray[Any], content_type: str | None) -> list[Any]:
    """The values as JSON would have them."""
    values: list[Any] = array.tolist()
    if array.dtype.kind == "f":
        return values if array.ndim > 1 else [None if value != value else value for value in values]  # noqa: PLR0124
    if array.dtype.kind != "O" or array.ndim > 1:
        return values
    if column.type is ColumnType.BINARY:
        return binaries(label, values, content_type)
    if column.type is ColumnType.OTHER:
        return parsed(label, values, content_type)
    return texts(label, values, content_type)


def _binary(column: Column, label: str, values: list[Any]) -> NDArray[Any]:
    """Elements that are bytes already stay; the table reads the others as base64 text."""
    result = coerce_column(column, label, [None if isinstance(value, bytes) else value for value in values])
    for row, value in enumerate(values):
        if isinstance(value, bytes):
            result[row] = value
    return result
