"""An invocation's data as what a pyfunc model takes: a pandas frame, an array, a dict of arrays, or the body itself.

Called by the pyfunc runtime in a lane's thread, with the model's input schema. Columns are decoded here by our own
coercion table, in exactly the dtypes that MLflow's enforcement expects, so that its looser casts never run.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from steelyard.errors import BadRequest, InvalidParameter
from steelyard.protocols.mlflow.coerce import coerce_column, text_to_json
from steelyard.protocols.mlflow.request import Format, Invocation
from steelyard.protocols.mlflow.schema import Column, InputSchema
from steelyard.protocols.mlflow.tensors import coerce_tensor, free_array
from steelyard.protocols.strict_json import json_type

if TYPE_CHECKING:
    import pandas as pd

Columns = dict[Any, list[Any]]

_NO_ROWS = "The data holds no rows."  # most models raise on none; refusing them everywhere treats all formats alike


def build_payload(invocation: Invocation, schema: InputSchema | None) -> Any:
    """The model's input. Raises BadRequest or InvalidParameter naming the column."""
    data, layout = invocation.data, invocation.format
    if layout is Format.UNWRAPPED:
        return data
    if layout is Format.CSV:
        return _csv(data, schema)
    if layout in (Format.SPLIT, Format.RECORDS):
        index = data.get("index") if layout is Format.SPLIT else None
        columns, rows = _split_columns(data) if layout is Format.SPLIT else _record_columns(data, schema)
        return _frame(columns, rows, schema, index)
    if schema is None:
        return _free(data, layout.value)
    if schema.tensors:
        return _tensors(data, schema, rows=layout is Format.INSTANCES)
    return _column_inputs(data, schema, layout.value)


def _split_columns(data: dict[str, Any]) -> tuple[Columns, int]:
    rows = data["data"]
    names = data.get("columns")
    if names is None:
        names = list(range(len(rows[0]))) if rows else []
    if not rows:
        return {name: [] for name in names}, 0
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)), len(rows)


def _record_columns(records: list[dict[str, Any]], schema: InputSchema | None) -> tuple[Columns, int]:
    names: dict[str, None] = {}
    for record in records:
        names.update(dict.fromkeys(record))
    columns: Columns = {name: [record.get(name) for record in records] for name in names}
    for column in schema.columns if schema else ():
        if column.required and column.name in columns:
            _require_in_each(column.name, records)
    return columns, len(records)


def _require_in_each(name: str | None, records: list[dict[str, Any]]) -> None:
    for number, record in enumerate(records):
        if name not in record:
            raise InvalidParameter(f"Column '{name}' is missing in row {number}.", param=name)


def _frame(columns: Columns, rows: int, schema: InputSchema | None, index: list[Any] | None = None) -> pd.DataFrame:
    import pandas as pd  # noqa: PLC0415  (a replica of another kind never loads it)

    try:
        if schema is None or schema.tensors:
            return pd.DataFrame(columns, index=index if index is not None else range(rows))
        columns = _typed(columns, schema) if schema.named else _typed_by_place(columns, schema)
        if rows == 0:
            raise BadRequest(_NO_ROWS)
        return pd.DataFrame(columns, index=index if index is not None else range(rows))
    except (ValueError, TypeError, OverflowError) as error:
        raise BadRequest(f"The data is not a valid table: {type(error).__name__}.") from None


def _typed(columns: Columns, schema: InputSchema) -> Columns:
    """The signature's columns in its order. Unknown ones are dropped, as MLflow does."""
    missing = [column.name for column in schema.columns if column.required and column.name not in columns]
    if missing:
        known = {column.name for column in schema.columns}
        unknown = [name for name in columns if name not in known]
        hint = f" The data has {_listed(unknown)}, which the model does not know." if unknown else ""
        raise InvalidParameter(f"The model needs {_listed(missing)}, which the data lacks.{hint}", param=missing[0])
    result: dict[Any, Any] = {}
    for column in schema.columns:
        values = columns.get(column.name)
        if values is None or (not column.required and values and all(value is None for value in values)):
            continue  # an optional column of nothing but nulls is an absent one: integers have no null
        result[column.name] = coerce_column(column, str(column.name), values)
    return result


def _listed(names: list[Any]) -> str:
    """Up to five names: "column 'a'", "columns 'a', 'b'"; more are counted."""
    quoted = ", ".join(f"'{str(name)[:60]}'" for name in names[:5]) + (f" and {len(names) - 5} more" * (len(names) > 5))
    return f"column{'s' * (len(names) > 1)} {quoted}"


def _typed_by_place(columns: Columns, schema: InputSchema) -> Columns:
    if len(columns) < len(schema.columns):
        raise BadRequest(f"The model needs {len(schema.columns)} columns, not {len(columns)}.")
    pairs = zip(schema.columns, columns.items(), strict=False)
    return {name: coerce_column(column, str(name), values) for column, (name, values) in pairs}  # type: ignore[misc]


def _csv(cells: dict[str, list[str | None]], schema: InputSchema | None) -> pd.DataFrame:
    rows = len(next(iter(cells.values()), []))
    if schema is None or schema.tensors:
        return _inferred(cells)
    kinds = {column.name: column.type for column in schema.columns} if schema.named else {}
    by_place = [column.type for column in schema.columns]
    columns: Columns = {}
    for place, (name, values) in enumerate(cells.items()):
        kind = kinds.get(name) if schema.named else (by_place[place] if place < len(by_place) else None)
        columns[name] = [text_to_json(kind, value) for value in values] if kind else list(values)
    return _frame(columns, rows, schema)


def _inferred(cells: dict[str, list[str | None]]) -> pd.DataFrame:
    """Types guessed by pandas, since the model states none."""
    import pandas as pd  # noqa: PLC0415

    frame = pd.DataFrame(cells)
    try:
        return pd.read_csv(io.StringIO(frame.to_csv(index=False)))
    except (ValueError, OverflowError) as error:
        raise BadRequest(f"The CSV cannot be read: {type(error).__name__}.") from None


def _free(data: Any, label: str) -> Any:
    """Without a signature: arrays as numpy reads them, a dict or rows of dicts by column."""
    if isinstance(data, list) and data and isinstance(data[0], dict):
        data = _transpose(data, label)
    if isinstance(data, dict):
        return {name: free_array(name, values) for name, values in data.items()}
    return free_array(label, data)


def _transpose(rows: list[Any], label: str) -> dict[str, list[Any]]:
    names = list(rows[0])
    for number, row in enumerate(rows):
        if not isinstance(row, dict) or row.keys() != rows[0].keys():
            raise InvalidParameter(f"Row {number} of '{label}' must hold the same fields as row 0.", param=label)
    return {name: [row[name] for row in rows] for name in names}


def _tensors(data: Any, schema: InputSchema, *, rows: bool) -> Any:
    if data in ([], {}):
        raise BadRequest(_NO_ROWS)
    if rows and data and isinstance(data[0], dict):
        data = _transpose(data, "instances")
    if not schema.named:
        if isinstance(data, dict):
            raise BadRequest("The model takes one unnamed tensor, not an object.")
        return coerce_tensor(schema.tensors[0], "instances" if rows else "inputs", data)
    if not isinstance(data, dict):
        if len(schema.tensors) > 1:
            names = ", ".join(f"'{tensor.name}'" for tensor in schema.tensors)
            raise BadRequest(f"The model takes an object of tensors {names}.")
        data = {schema.tensors[0].name: data}
    result = {}
    for tensor in schema.tensors:
        if tensor.name not in data:
            raise InvalidParameter(f"The model needs missing input '{tensor.name}'.", param=tensor.name)
        result[tensor.name] = coerce_tensor(tensor, str(tensor.name), data[tensor.name])
    return result


def _column_inputs(data: Any, schema: InputSchema, label: str) -> Any:
    """`inputs` and `instances` for a signature of columns."""
    if isinstance(data, list) and data and all(isinstance(row, dict) for row in data):
        columns, rows = _record_columns(data, schema)
        return _frame(columns, rows, schema)
    if isinstance(data, dict):
        if schema.has_other:
            return data  # whether a list is one value or many is for MLflow's enforcement to say
        return _columnar(data, schema, label)
    if isinstance(data, list):
        if any(isinstance(row, dict) for row in data):
            raise InvalidParameter(f"The rows of '{label}' must be all objects or all arrays.", param=label)
        return _positional(data, schema, label)
    return _positional([data], schema, label)


def _columnar(data: dict[str, Any], schema: InputSchema, label: str) -> Any:
    columns = {name: values if isinstance(values, list) else [values] for name, values in data.items()}
    known = [column.name for column in schema.columns if column.name in columns] if schema.named else list(columns)
    lengths = {len(columns[name]) for name in known}
    if len(lengths) > 1:
        raise InvalidParameter(f"The columns of '{label}' differ in length.", param=label)
    rows = lengths.pop() if lengths else 0
    if not schema.named:
        return _frame(columns, rows, schema)
    return _frame({name: columns[name] for name in known}, rows, schema)


def _positional(data: list[Any], schema: InputSchema, label: str) -> Any:
    if len(schema.columns) == 1 and not any(isinstance(row, list) for row in data):
        only: Column = schema.columns[0]
        return _frame({only.name if only.name is not None else 0: data}, len(data), schema)
    if schema.named and not (len(schema.columns) == 1 and schema.has_other):
        names = ", ".join(f"'{column.name}'" for column in schema.columns[:8])
        raise InvalidParameter(f"The rows of '{label}' must be objects with the fields {names}.", param=label)
    if schema.has_other:
        return data
    width = len(schema.columns)
    for number, row in enumerate(data):
        if not isinstance(row, list) or len(row) != width:
            got = f"{len(row)} values" if isinstance(row, list) else json_type(row)
            raise InvalidParameter(f"Row {number} of '{label}' must be an array of {width}, not {got}.", param=label)
    columns: Columns = {place: [row[place] for row in data] for place in range(width)}
    return _frame(columns, len(data), schema)
