"""JSON rows of known columns → `Inputs`: what the plans of tables share.

Compiled per order of columns from a signature: the type that msgspec decodes a row as, and how the decoded rows become
arrays. Called by `plan.py` and `plan_split.py`. It returns None, never an error, where the general path must decide.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from msgspec import UNSET, UnsetType
from numpy.typing import NDArray

from steelyard.errors import SteelyardError
from steelyard.protocols.inputs import Inputs, Name
from steelyard.protocols.mlflow.coerce import coerce_column, is_absent
from steelyard.protocols.mlflow.plan_packing import Packing
from steelyard.protocols.mlflow.schema import Column, ColumnType
from steelyard.protocols.mlflow.table import assemble

_PACKINGS = {
    ColumnType.DOUBLE: Packing("float64"),
    ColumnType.FLOAT: Packing("float32"),
    ColumnType.LONG: Packing("int64"),
    ColumnType.INTEGER: Packing("int32"),
}
_TEXT = (ColumnType.STRING, ColumnType.BINARY, ColumnType.DATETIME)


def json_type(column: Column) -> Any:
    """The type that msgspec decodes one value of the column as: never more than the coercion table takes."""
    packing = _PACKINGS.get(column.type)
    if packing is not None:
        return packing.json_type(nullable=not column.required)
    if column.type in _TEXT:
        return str | None
    if column.type is ColumnType.BOOLEAN:
        return bool if column.required else bool | None
    return Any


class RowPlan:
    """Rows as tuples whose places are `columns`, which are submitted under `names`; `order` is the signature's."""

    def __init__(self, columns: Sequence[Column], names: Sequence[Name], order: Sequence[int] | None = None) -> None:
        places = list(range(len(columns))) if order is None else list(order)
        self.row_type: Any = tuple.__class_getitem__(tuple(map(json_type, columns)))
        self._columns = [(place, columns[place], names[place]) for place in places]
        self._names = tuple(names[place] for place in places)
        self._places = None if places == sorted(places) else np.array(places)
        self._packing = _shared_packing(columns)
        self._width = len(places)
        self._one_row = None if self._packing is None else self._packing.one_row(self._width)

    def inputs(self, rows: list[Any], index: list[Any] | None = None) -> Inputs | None:
        """`rows` as `row_type` has them, at least one."""
        if self._packing is None or self._one_row is None:
            return self._by_column(rows, index)
        count = len(rows)
        try:
            matrix = self._one_row(rows[0]) if count == 1 else self._packing.matrix(rows, self._width)
        except struct.error:  # a null, or a number out of range
            return self._by_column(rows, index)
        if self._places is not None:
            matrix = matrix.take(self._places, axis=1)
        return Inputs(self._names, count, matrix, (), True, index)

    def _by_column(self, rows: list[Any], index: list[Any] | None) -> Inputs | None:
        values = list(zip(*rows, strict=True))
        return table(((column, name, values[place]) for place, column, name in self._columns), len(rows), index)


class ColumnPlan:
    """Columns in the signature's order, each a list of values; an optional one may be absent (UNSET)."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = columns
        self._names: tuple[Name, ...] = tuple(column.name for column in columns)
        self._packing = _shared_packing(columns)
        self._complete = all(column.required for column in columns)

    def inputs(self, values: Sequence[list[Any] | UnsetType]) -> Inputs | None:
        if self._packing is not None and self._complete:
            return self._matrix(values, self._packing)  # type: ignore[arg-type]
        return self._by_column(values)

    def _matrix(self, values: Sequence[list[Any]], packing: Packing) -> Inputs | None:
        rows = len(values[0])
        if rows == 0 or set(map(len, values)) != {rows}:
            return None
        try:
            by_column = packing.matrix(values, rows)
        except struct.error:  # a null, or a number out of range
            return self._by_column(values)
        return Inputs(self._names, rows, np.ascontiguousarray(by_column.T))

    def _by_column(self, values: Sequence[list[Any] | UnsetType]) -> Inputs | None:
        given: list[tuple[Column, Name, Any]] = [
            (column, column.name, value)
            for column, value in zip(self._columns, values, strict=True)
            if value is not UNSET
        ]
        lengths = {len(value) for _, _, value in given}
        if len(lengths) != 1 or 0 in lengths:
            return None
        return table(given, lengths.pop(), None)


def table(columns: Iterable[tuple[Column, Name, Sequence[Any]]], rows: int, index: list[Any] | None) -> Inputs | None:
    """Columns in the signature's order, decoded as `json_type` says."""
    arrays: dict[Any, NDArray[Any]] = {}
    for column, name, submitted in columns:
        values = submitted if column.required else _given(column, submitted)
        if values is None:
            continue
        array = _array(column, str(name), values)
        if array is None:
            return None
        arrays[name] = array
    return assemble(arrays, rows, index)


def _given(column: Column, values: Sequence[Any]) -> Sequence[Any] | None:
    """An optional column; None when it is not there. What only some rows lack is null in them."""
    if any(value is UNSET for value in values):
        if all(value is UNSET for value in values):
            return None
        values = [None if value is UNSET else value for value in values]
    return None if is_absent(column, values) else values


def _shared_packing(columns: Sequence[Column]) -> Packing | None:
    packings = {_PACKINGS.get(column.type) for column in columns}
    return packings.pop() if len(packings) == 1 else None


def _array(column: Column, label: str, values: Sequence[Any]) -> NDArray[Any] | None:
    packing = _PACKINGS.get(column.type)
    if packing is not None:
        try:
            return packing.array(values)
        except struct.error:
            return np.array(values, dtype=packing.dtype) if packing.dtype.kind == "f" else None
    if column.type is ColumnType.STRING:
        return np.array(values, dtype=object)
    if column.type is ColumnType.BOOLEAN and None not in values:
        return np.array(values, dtype=np.bool_)
    try:
        return coerce_column(column, label, values)
    except SteelyardError:
        return None
