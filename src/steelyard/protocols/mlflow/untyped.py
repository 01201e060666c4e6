"""Data for a model without a signature: numpy and pandas decide what it means, as they do in MLflow.

Called by `codec.py` in a model's worker; the only decoder here that makes pandas frames.
"""

from __future__ import annotations

import io
from typing import Any

from steelyard.errors import BadRequest
from steelyard.protocols.media import Media
from steelyard.protocols.mlflow.arrow_input import read_table
from steelyard.protocols.mlflow.layout import record_columns, split_columns
from steelyard.protocols.mlflow.request import Format, Invocation
from steelyard.protocols.mlflow.tensor_inputs import transposed
from steelyard.protocols.mlflow.tensors import free_array


def free_payload(invocation: Invocation) -> Any:
    """A frame for tables, an array or a dict of arrays for `inputs` and `instances`. Raises BadRequest."""
    data, layout = invocation.data, invocation.format
    if layout is Format.CSV:
        return _inferred(data)
    if layout is Format.SPLIT:
        return _frame(*split_columns(data), data.get("index"))
    if layout is Format.RECORDS:
        return _frame(*record_columns(data, None), None)
    return _arrays(data, layout.value)


def free_table(body: bytes, media: Media) -> Any:
    """An Arrow or Parquet body as the frame that pyarrow makes of it. Raises BadRequest."""
    table = read_table(body, media)
    try:
        return table.to_pandas()
    except Exception as error:  # each release of pyarrow has errors of its own for what pandas cannot hold
        raise BadRequest(f"The data is not a valid table: {type(error).__name__}.") from None


def _frame(columns: dict[Any, list[Any]], rows: int, index: list[Any] | None) -> Any:
    import pandas as pd  # noqa: PLC0415  (only such models need it)

    try:
        return pd.DataFrame(columns, index=index if index is not None else range(rows))
    except (ValueError, TypeError, OverflowError) as error:
        raise BadRequest(f"The data is not a valid table: {type(error).__name__}.") from None


def _inferred(cells: dict[str, list[str | None]]) -> Any:
    """Types guessed by pandas, since the model states none."""
    import pandas as pd  # noqa: PLC0415

    frame = pd.DataFrame(cells)
    try:
        return pd.read_csv(io.StringIO(frame.to_csv(index=False)))
    except (ValueError, OverflowError) as error:
        raise BadRequest(f"The CSV cannot be read: {type(error).__name__}.") from None


def _arrays(data: Any, label: str) -> Any:
    """Rows of objects stay such in `inputs` and become columns in `instances`."""
    if isinstance(data, list) and label == Format.INPUTS.value and all(isinstance(row, dict) for row in data):
        return data
    if isinstance(data, list) and data and isinstance(data[0], dict):
        data = transposed(data, label)
    if isinstance(data, dict):
        return {name: free_array(name, values) for name, values in data.items()}
    return free_array(label, data)
