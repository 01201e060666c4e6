"""Any format's data → typed `Inputs` by the signature: the decoder that takes everything and gives every error.

Called by `codec.py` for what the compiled plan (`plan.py`) leaves to it. It knows no pandas; what is special to a
format is in `layout.py`, `arrow_input.py` and `tensor_inputs.py`.
"""

from __future__ import annotations

import numpy as np

from steelyard.protocols.inputs import Inputs
from steelyard.protocols.media import Media
from steelyard.protocols.mlflow.arrow_input import raw_columns, read_table
from steelyard.protocols.mlflow.layout import csv_columns, input_columns, record_columns, split_columns
from steelyard.protocols.mlflow.request import Format, Invocation
from steelyard.protocols.mlflow.schema import Column, ColumnType, InputSchema
from steelyard.protocols.mlflow.table import typed_table
from steelyard.protocols.mlflow.tensor_inputs import tensors_from_json, tensors_from_table


def decode_invocation(invocation: Invocation, schema: InputSchema) -> Inputs:
    """The typed rows. Raises BadRequest or InvalidParameter naming the column."""
    data, layout = invocation.data, invocation.format
    index = data.get("index") if layout is Format.SPLIT else None
    if layout is Format.SPLIT:
        columns, rows = split_columns(data)
    elif layout is Format.RECORDS:
        columns, rows = record_columns(data, schema)
    elif layout is Format.CSV:
        columns, rows = csv_columns(data, _columns_of(schema, list(data)))
    elif schema.tensors:
        return tensors_from_json(data, schema, layout.value)
    else:
        columns, rows = input_columns(data, schema, layout.value)
    if schema.tensors:
        return tensors_from_table(columns, rows, schema)
    return typed_table(columns, rows, schema, index)


def decode_table(body: bytes, media: Media, schema: InputSchema) -> Inputs:
    """An Arrow or Parquet body. Raises BadRequest, or UnsupportedMediaType without pyarrow."""
    table = read_table(body, media)
    columns = raw_columns(table, schema)
    if schema.tensors:
        return tensors_from_table(columns, table.num_rows, schema)
    return typed_table(columns, table.num_rows, schema)


_CELLS = {"f": ColumnType.DOUBLE, "i": ColumnType.LONG, "u": ColumnType.LONG, "b": ColumnType.BOOLEAN}


def _columns_of(schema: InputSchema, header: list[str]) -> InputSchema:
    """How to read CSV cells: the schema itself, or its tensors as the columns that they come in."""
    if schema.columns:
        return schema
    kinds = {tensor.name: _cell_type(tensor.dtype) for tensor in schema.tensors}
    only = kinds.get(None)
    return InputSchema(tuple(Column(name, only or kinds.get(name, ColumnType.STRING)) for name in header))


def _cell_type(dtype: str) -> ColumnType:
    try:
        return _CELLS.get(np.dtype(dtype).kind, ColumnType.STRING)
    except TypeError:
        return ColumnType.STRING
