"""One row of the model `table` as the two columnar bodies, made by pyarrow."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq

_TABLE = pa.table({"a": [1], "b": [2.5], "c": ["s"]})


def _parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(_TABLE, sink)
    return sink.getvalue()


def _stream() -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, _TABLE.schema) as writer:
        writer.write_table(_TABLE)
    return sink.getvalue()


PARQUET = _parquet()
STREAM = _stream()
