"""One tensor as one column of a signature, by the one coercion table.

Called by `decode.py`. Here is only what a BYTES element or a row of a tensor stands for; whether a column can hold it
is for `mlflow/coerce.py` to say, so that a refusal is the same in every format.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from steelyard.protocols.mlflow.coerce import DTYPES, coerce_column, is_absent
from steelyard.protocols.mlflow.scalars import RANGES
from steelyard.protocols.mlflow.schema import Column, ColumnType
from steelyard.protocols.open_inference.datatypes import fit
from steelyard.protocols.open_inference.elements import binaries, parsed, texts


def as_column(column: Column, label: str, array: NDArray[Any], content_type: str | None) -> NDArray[Any] | None:
    """The array, rows first, in the column's type; None for an optional column of integers without any, which is
    an absent one. Raises InvalidParameter naming `label`, and the row where there is one."""
    values = _elements(column, label, array, content_type) if array.dtype.kind == "O" else array
    if is_absent(column, values):
        return None
    if not isinstance(values, list):
        if values.ndim > 1:  # only columns of arrays come here so
            values = values.tolist()
        elif column.type in RANGES and values.dtype.kind == "f":
            values = _whole(column, values)
    return coerce_column(column, label, values)


def _elements(column: Column, label: str, array: NDArray[Any], content_type: str | None) -> list[Any]:
    """The values as JSON would have them, and bytes where the column wants bytes."""
    values: list[Any] = array.tolist()
    if array.ndim > 1:
        return values
    if column.type is ColumnType.BINARY:
        return binaries(label, values, content_type)
    if column.type is ColumnType.OTHER:
        return parsed(label, values, content_type)
    return texts(label, values, content_type)


def _whole(column: Column, array: NDArray[Any]) -> NDArray[Any]:
    """Floats that are whole, as integers: at once, where the table goes by the value; others are left to it."""
    fitting = fit(array, DTYPES[column.type])
    return array if fitting is None else fitting
