"""Named columns of raw values → typed `Inputs` by the signature: the end of every format's way to a table.

Called by `general.py` and `arrow_input.py` with columns as they were submitted, and by `plan.py` for the last step.
Chooses and orders columns, has them coerced, and says which are missing; never looks at a format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.errors import BadRequest, InvalidParameter
from steelyard.protocols.inputs import Inputs, Name
from steelyard.protocols.mlflow.coerce import Values, coerce_column, is_absent
from steelyard.protocols.mlflow.schema import InputSchema

Columns = Mapping[Any, Values]

NO_ROWS = "The data holds no rows."  # most models raise on none; refusing them everywhere treats all formats alike
_MATRIX_DTYPES = {np.dtype(kind) for kind in (np.float64, np.float32, np.int64, np.int32)}


def typed_table(columns: Columns, rows: int, schema: InputSchema, index: list[Any] | None = None) -> Inputs:
    """The signature's columns in its order; unknown ones are dropped, as MLflow does. Raises BadRequest."""
    chosen = _by_name(columns, schema) if schema.named else _by_place(columns, schema)
    if rows == 0:
        raise BadRequest(NO_ROWS)
    return assemble(chosen, rows, index)


def assemble(columns: Mapping[Any, NDArray[Any]], rows: int, index: list[Any] | None) -> Inputs:
    """One matrix when the columns share a numeric dtype, else one array per column."""
    names: tuple[Name, ...] = tuple(columns)
    parts = tuple(columns.values())
    dtypes = {part.dtype for part in parts}
    if len(dtypes) == 1 and dtypes <= _MATRIX_DTYPES:
        matrix = np.empty((rows, len(parts)), dtype=parts[0].dtype)
        for place, part in enumerate(parts):
            matrix[:, place] = part
        return Inputs(names, rows, matrix, (), True, index)
    return Inputs(names, rows, None, parts, True, index)


def _by_name(columns: Columns, schema: InputSchema) -> dict[Any, NDArray[Any]]:
    missing = [column.name for column in schema.columns if column.required and column.name not in columns]
    if missing:
        known = {column.name for column in schema.columns}
        unknown = [name for name in columns if name not in known]
        hint = f" The data has {_listed(unknown)}, which the model does not know." if unknown else ""
        raise InvalidParameter(f"The model needs {_listed(missing)}, which the data lacks.{hint}", param=missing[0])
    result: dict[Any, NDArray[Any]] = {}
    for column in schema.columns:
        values = columns.get(column.name)
        if values is None or is_absent(column, values):
            continue
        result[column.name] = coerce_column(column, str(column.name), values)
    return result


def _by_place(columns: Columns, schema: InputSchema) -> dict[Any, NDArray[Any]]:
    """A signature without names takes the first columns, under the names that they came with."""
    if len(columns) < len(schema.columns):
        raise BadRequest(f"The model needs {len(schema.columns)} columns, not {len(columns)}.")
    pairs = zip(schema.columns, columns.items(), strict=False)
    return {name: coerce_column(column, str(name), values) for column, (name, values) in pairs}


def _listed(names: Sequence[Any]) -> str:
    """Up to five names: "column 'a'", "columns 'a', 'b'"; more are counted."""
    quoted = ", ".join(f"'{str(name)[:60]}'" for name in names[:5]) + (f" and {len(names) - 5} more" * (len(names) > 5))
    return f"column{'s' * (len(names) > 1)} {quoted}"
