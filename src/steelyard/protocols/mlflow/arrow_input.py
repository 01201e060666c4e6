"""Arrow IPC streams and Parquet files as raw columns, for batches that would be slow and lossy as text.

Called by `general.py` and `untyped.py`. pyarrow is imported with the first such body and is no requirement: without
it they are refused. A file is checked before it is trusted: its size when decoded, its offsets, its names.
"""

from __future__ import annotations

import decimal
import io
from typing import Any

import numpy as np

from steelyard.errors import BadRequest, PayloadTooLarge, UnsupportedMediaType
from steelyard.protocols.media import Media
from steelyard.protocols.mlflow.coerce import Values
from steelyard.protocols.mlflow.schema import InputSchema

_MAX_CELLS = 100_000_000  # rows × columns: compression can hide a table that no memory holds
_MAX_DECODED_BYTES = 2**31


def read_table(body: bytes, media: Media) -> Any:
    """A pyarrow Table. Raises BadRequest, PayloadTooLarge, or UnsupportedMediaType without pyarrow."""
    try:
        import pyarrow as pa  # noqa: PLC0415  (a fifth of a second, and only such bodies need it)
        import pyarrow.parquet as pq  # noqa: PLC0415
    except ImportError:
        raise UnsupportedMediaType(
            "Arrow and Parquet bodies need pyarrow, which is not installed; send JSON."
        ) from None
    name = "Arrow IPC stream" if media is Media.ARROW else "Parquet file"
    try:
        table = _stream(pa, body) if media is Media.ARROW else _parquet(pq, body)
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, EOFError, OverflowError) as error:
        raise BadRequest(f"The body is not a valid {name}: {type(error).__name__}.") from None
    if len(set(table.column_names)) != table.num_columns:
        raise BadRequest("The table holds a column name twice.")
    return table


def raw_columns(table: Any, schema: InputSchema) -> dict[Any, Values]:
    """The columns that the signature knows (all, if it has no names), each as numbers or as JSON would have it."""
    known = {item.name for item in schema.columns or schema.tensors} if schema.named else None
    names = [name for name in table.column_names if known is None or name in known]
    unknown = {} if known is None else {name: () for name in table.column_names if name not in known}
    return {**unknown, **{name: _values(name, table.column(name)) for name in names}}


def _stream(pa: Any, body: bytes) -> Any:
    batches, rows, total_bytes = [], 0, 0
    with pa.ipc.open_stream(pa.BufferReader(body)) as reader:
        for batch in reader:
            rows, total_bytes = rows + batch.num_rows, total_bytes + batch.nbytes
            _check_size(rows, batch.num_columns, total_bytes)
            batches.append(batch)
        return pa.Table.from_batches(batches, reader.schema)


def _parquet(pq: Any, body: bytes) -> Any:
    file = pq.ParquetFile(io.BytesIO(body))
    meta = file.metadata
    total_bytes = sum(meta.row_group(place).total_byte_size for place in range(meta.num_row_groups))
    _check_size(meta.num_rows, meta.num_columns, total_bytes)
    return file.read()


def _check_size(rows: int, columns: int, total_bytes: int) -> None:
    if rows * max(columns, 1) > _MAX_CELLS or total_bytes > _MAX_DECODED_BYTES:
        raise PayloadTooLarge("The table is too large when decoded; send it in parts.")


def _values(name: str, column: Any) -> Values:
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.types as kinds  # noqa: PLC0415

    kind = column.type
    try:
        if kinds.is_dictionary(kind):
            column = column.cast(kind.value_type)
            kind = column.type
        if kinds.is_timestamp(kind) or kinds.is_date(kind):
            return np.asarray(column.cast(pa.timestamp("ns")).to_numpy(), dtype="datetime64[ns]")
        if kinds.is_floating(kind) or ((kinds.is_integer(kind) or kinds.is_boolean(kind)) and not column.null_count):
            return np.asarray(column.to_numpy())
        return [_plain(value, kind, kinds) for value in column.to_pylist()]
    except (pa.ArrowException, ValueError, OverflowError, RecursionError, UnicodeDecodeError) as error:
        raise BadRequest(f"Column '{name}' of the table cannot be read: {type(error).__name__}.", param=name) from None


def _plain(value: Any, kind: Any, kinds: Any) -> Any:
    """A pyarrow value as JSON would have it; bytes and dates stay what they are, for the coercion table knows them."""
    if value is None:
        return None
    if isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if kinds.is_map(kind):
        return {key: _plain(item, kind.item_type, kinds) for key, item in value}
    if kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind):
        return [_plain(item, kind.value_type, kinds) for item in value]
    if kinds.is_struct(kind):
        return {
            field.name: _plain(value[field.name], field.type, kinds)
            for field in (kind.field(place) for place in range(kind.num_fields))
        }
    return value
