"""Any format's data → typed `Inputs` for a signature of tensors: bare arrays by name, in the signature's order.

Called by `general.py`. Rows of objects become one array per field; the columns of a table become tensors as MLflow
reshapes them. Every tensor leaves in its dtype and shape, or the request is refused.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.errors import BadRequest, InvalidParameter
from steelyard.protocols.inputs import Inputs
from steelyard.protocols.mlflow.coerce import Values
from steelyard.protocols.mlflow.schema import InputSchema, Tensor
from steelyard.protocols.mlflow.table import NO_ROWS, Columns
from steelyard.protocols.mlflow.tensors import check_shape, coerce_tensor


def tensors_from_json(data: Any, schema: InputSchema, label: str) -> Inputs:
    """`inputs` and `instances`. Raises BadRequest or InvalidParameter."""
    if data in ([], {}):
        raise BadRequest(NO_ROWS)
    if label == "instances" and isinstance(data[0], dict):
        data = transposed(data, label)
    if not schema.named:
        if isinstance(data, dict):
            raise BadRequest("The model takes one unnamed tensor, not an object.")
        return tensor_inputs(schema, [_whole(schema.tensors[0], label, data)])
    if not isinstance(data, dict):
        if len(schema.tensors) > 1:
            names = ", ".join(f"'{tensor.name}'" for tensor in schema.tensors)
            raise BadRequest(f"The model takes an object of tensors {names}.")
        data = {schema.tensors[0].name: data}
    _require(schema, data)
    return tensor_inputs(schema, [_whole(tensor, str(tensor.name), data[tensor.name]) for tensor in schema.tensors])


def tensors_from_table(columns: Columns, rows: int, schema: InputSchema) -> Inputs:
    """A table: a column per named tensor, or all columns side by side for the unnamed one."""
    if rows == 0:
        raise BadRequest(NO_ROWS)
    if schema.named:
        _require(schema, columns)
        parts = [_column(tensor, str(tensor.name), columns[tensor.name]) for tensor in schema.tensors]
        return tensor_inputs(schema, parts)
    tensor = schema.tensors[0]
    if len(columns) == 1:
        ((name, values),) = columns.items()
        return tensor_inputs(schema, [_column(tensor, str(name), values)])
    flat = Tensor(None, tensor.dtype, (-1,))
    arrays = [check_shape(flat, str(name), coerce_tensor(flat, str(name), values)) for name, values in columns.items()]
    return tensor_inputs(
        schema, [check_shape(tensor, "data", np.stack(arrays, axis=1) if arrays else np.empty((rows, 0)))]
    )


def transposed(rows: list[Any], label: str) -> dict[str, list[Any]]:
    """Rows of objects as one list per field. Raises InvalidParameter naming the row that differs."""
    names = list(rows[0])
    for number, row in enumerate(rows):
        if not isinstance(row, dict) or row.keys() != rows[0].keys():
            raise InvalidParameter(f"Row {number} of '{label}' must hold the same fields as row 0.", param=label)
    return {name: [row[name] for row in rows] for name in names}


def tensor_inputs(schema: InputSchema, parts: list[NDArray[Any]]) -> Inputs:
    """Raises BadRequest when there are no rows."""
    first = parts[0]
    rows = len(first) if first.ndim else 1
    if rows == 0:
        raise BadRequest(NO_ROWS)
    return Inputs(tuple(tensor.name for tensor in schema.tensors), rows, None, tuple(parts), columnar=False)


def _require(schema: InputSchema, given: Any) -> None:
    for tensor in schema.tensors:
        if tensor.name not in given:
            raise InvalidParameter(f"The model needs missing input '{tensor.name}'.", param=tensor.name)


def _whole(tensor: Tensor, label: str, data: Any) -> NDArray[Any]:
    return check_shape(tensor, label, coerce_tensor(tensor, label, data))


def _column(tensor: Tensor, label: str, values: Values) -> NDArray[Any]:
    """A cell per row: a number, or a list that holds the row's tensor flat or in its shape."""
    array = coerce_tensor(tensor, label, values)
    row = tensor.shape[1:]
    flat = array.shape[1:] in ((), (math.prod(row),))
    if array.ndim and array.shape[1:] != row and row and min(row) > 0 and flat and array[0].size == math.prod(row):
        array = array.reshape(len(array), *row)
    return check_shape(tensor, label, array)
