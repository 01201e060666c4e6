"""The layouts of a table: how `dataframe_split`, `dataframe_records`, `inputs`, `instances` and CSV name their columns.

Called by `general.py` with an envelope that `request.py` has checked. The result is always raw columns by name with
their number of rows; the types come later, in `table.py`.
"""

from __future__ import annotations

from typing import Any

from steelyard.errors import InvalidParameter
from steelyard.protocols.mlflow.coerce import text_to_json
from steelyard.protocols.mlflow.schema import AnyValue, ArrayOf, Column, InputSchema, Nested, ObjectOf
from steelyard.protocols.strict_json import json_type

Columns = dict[Any, list[Any]]
Cells = dict[str, list[str | None]]


def split_columns(data: dict[str, Any]) -> tuple[Columns, int]:
    rows = data["data"]
    names = data.get("columns")
    if names is None:
        names = list(range(len(rows[0]))) if rows else []
    if not rows:
        return {name: [] for name in names}, 0
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)), len(rows)


def record_columns(records: list[dict[str, Any]], schema: InputSchema | None) -> tuple[Columns, int]:
    """A required column must be in each record. Raises InvalidParameter naming the row."""
    names: dict[str, None] = {}
    for record in records:
        names.update(dict.fromkeys(record))
    columns: Columns = {name: [record.get(name) for record in records] for name in names}
    for column in schema.columns if schema else ():
        if column.required and column.name in columns:
            _require_in_each(column.name, records)
    return columns, len(records)


def csv_columns(cells: Cells, schema: InputSchema) -> tuple[Columns, int]:
    by_name = {column.name: column for column in schema.columns} if schema.named else {}
    columns: Columns = {}
    for place, (name, values) in enumerate(cells.items()):
        column = by_name.get(name) if schema.named else schema.columns[place] if place < len(schema.columns) else None
        columns[name] = [text_to_json(column, value) for value in values] if column else list(values)
    return columns, len(next(iter(cells.values()), []))


def input_columns(data: Any, schema: InputSchema, label: str) -> tuple[Columns, int]:
    """`inputs` and `instances` for a signature of columns. Raises InvalidParameter."""
    sole = schema.columns[0] if len(schema.columns) == 1 else None
    if isinstance(data, dict):
        if sole is not None and sole.name is None and sole.nested is not None:
            return {0: [data]}, 1
        return _by_column(data, schema, label)
    if not isinstance(data, list):
        data = [data]
    if data and all(isinstance(row, dict) for row in data) and not (sole is not None and sole.name is None):
        return record_columns(data, schema)
    if sole is not None and sole.nested is not None:
        values = _nested_rows(sole.nested, data)
        return {_key(sole): values}, len(values)
    if any(isinstance(row, dict) for row in data):
        raise InvalidParameter(f"The rows of '{label}' must be all objects or all arrays.", param=label)
    if sole is not None and not any(isinstance(row, list) for row in data):
        return {_key(sole): data}, len(data)
    if schema.named:
        names = ", ".join(f"'{column.name}'" for column in schema.columns[:8])
        raise InvalidParameter(f"The rows of '{label}' must be objects with the fields {names}.", param=label)
    return _by_place(data, len(schema.columns), label)


def _key(column: Column) -> str | int:
    return column.name if column.name is not None else 0


def _require_in_each(name: str | None, records: list[dict[str, Any]]) -> None:
    for number, record in enumerate(records):
        if name not in record:
            raise InvalidParameter(f"Column '{name}' is missing in row {number}.", param=name)


def _by_column(data: dict[str, Any], schema: InputSchema, label: str) -> tuple[Columns, int]:
    """A signature that has an array or an object takes an object of values as one row, as MLflow does."""
    if any(isinstance(column.nested, ArrayOf | ObjectOf) for column in schema.columns):
        return {name: [value] for name, value in data.items()}, 1
    columns = {name: values if isinstance(values, list) else [values] for name, values in data.items()}
    known = [column.name for column in schema.columns if column.name in columns] if schema.named else list(columns)
    lengths = {len(columns[name]) for name in known}
    if len(lengths) > 1:
        raise InvalidParameter(f"The columns of '{label}' differ in length.", param=label)
    return columns, lengths.pop() if lengths else 0


def _nested_rows(kind: Nested, data: list[Any]) -> list[Any]:
    """The rows of an only column: an array is one row if it is as deep as the column's type, else a row per element."""
    if data and isinstance(kind, ArrayOf) and not _is_array_of_rows(kind, data):
        return [data]
    return data


def _is_array_of_rows(kind: ArrayOf, data: list[Any]) -> bool:
    depth, inner, value = 0, kind.items, data[0]
    while isinstance(inner, ArrayOf):
        depth, inner = depth + 1, inner.items
    if isinstance(inner, AnyValue):
        return False  # nothing tells the two apart; MLflow reads one row
    while isinstance(value, list) and depth >= 0:
        value, depth = value[0] if value else None, depth - 1
    return depth < 0


def _by_place(data: list[Any], width: int, label: str) -> tuple[Columns, int]:
    for number, row in enumerate(data):
        if not isinstance(row, list) or len(row) != width:
            got = f"{len(row)} values" if isinstance(row, list) else json_type(row)
            raise InvalidParameter(f"Row {number} of '{label}' must be an array of {width}, not {got}.", param=label)
    return {place: [row[place] for row in data] for place in range(width)}, len(data)
