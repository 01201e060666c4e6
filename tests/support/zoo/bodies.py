"""A zoo model's rows as the requests that a client may send for them, and the rows of an answer.

Pure values: used by tests that ask the platform, whatever carries the bytes.
"""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from support.zoo.case import Case

JSON, CSV = "application/json", "text/csv"
PARQUET, ARROW = "application/vnd.apache.parquet", "application/vnd.apache.arrow.stream"
INVOCATIONS, EMBEDDINGS = "invocations", "embeddings"
Rows = list[Any]


@dataclass(frozen=True)
class Form:
    """One way to ask: `write` makes the body for some of the case's rows, `read` the answers from the reply's body."""

    name: str
    write: Callable[[Case, Rows], bytes]
    read: Callable[[Case, Any], Rows]
    media: str = JSON
    path: str = INVOCATIONS


def forms(case: Case) -> list[Form]:
    """All ways in which this case's rows can be sent, the most usual first."""
    found = _FORMS[case.layout]
    if case.params is not None:
        return [form for form in found if form.media == JSON]
    if case.layout == "table" and any("" in row for row in case.rows):  # CSV has no empty text
        return [form for form in found if form.media != CSV]
    return found


def _json(case: Case, **data: Any) -> bytes:
    return msgspec.json.encode(data if case.params is None else {**data, "params": case.params})


def _split(case: Case, rows: Rows) -> bytes:
    return _json(case, dataframe_split={"columns": case.names, "data": rows})


def _unnamed_split(case: Case, rows: Rows) -> bytes:
    return _json(case, dataframe_split={"data": [[row] for row in rows]})


def _objects(case: Case, rows: Rows) -> Rows:
    return [dict(zip(case.names, row, strict=True)) for row in rows]


def _table(case: Case, rows: Rows) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(case.names)
    writer.writerows([[_cell(cell) for cell in row] for row in rows])
    return text.getvalue().encode()


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else value if isinstance(value, str) else repr(value)


def _arrow_table(case: Case, rows: Rows) -> Any:
    import pyarrow as pa

    return pa.table({name: pa.array(column) for name, column in _by_name(case, rows).items()})


def _parquet(case: Case, rows: Rows) -> bytes:
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(_arrow_table(case, rows), sink)
    return sink.getvalue()


def _arrow(case: Case, rows: Rows) -> bytes:
    import pyarrow as pa

    table, sink = _arrow_table(case, rows), io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _by_name(case: Case, rows: Rows) -> dict[str, Rows]:
    return {name: [row[place] for row in rows] for place, name in enumerate(case.names)}


def _tensors_by_name(case: Case, rows: Rows) -> dict[str, Rows]:
    return {name: [row[name] for row in rows] for name in case.names}


def _predictions(case: Case, reply: Any) -> Rows:
    answers = reply["predictions"]
    if not case.columns:
        return list(answers)
    return [dict(zip(answers, row, strict=True)) for row in zip(*answers.values(), strict=True)]


def _floats(case: Case, reply: Any) -> Rows:
    assert [item["index"] for item in reply["data"]] == list(range(len(reply["data"])))
    return [item["embedding"] for item in reply["data"]]


def _packed(case: Case, reply: Any) -> Rows:
    return [np.frombuffer(base64.b64decode(item["embedding"]), "<f4").tolist() for item in reply["data"]]


_RECORDS = Form(
    "dataframe_records", lambda case, rows: _json(case, dataframe_records=_objects(case, rows)), _predictions
)
_FORMS: dict[str, list[Form]] = {
    "table": [
        Form("dataframe_split", _split, _predictions),
        _RECORDS,
        Form("inputs", lambda case, rows: _json(case, inputs=_by_name(case, rows)), _predictions),
        Form("instances", lambda case, rows: _json(case, instances=_objects(case, rows)), _predictions),
        Form("csv", _table, _predictions, CSV),
        Form("parquet", _parquet, _predictions, PARQUET),
        Form("arrow", _arrow, _predictions, ARROW),
    ],
    "tensor": [
        Form("inputs", lambda case, rows: _json(case, inputs=rows), _predictions),
        Form("instances", lambda case, rows: _json(case, instances=rows), _predictions),
    ],
    "tensors": [
        Form("inputs", lambda case, rows: _json(case, inputs=_tensors_by_name(case, rows)), _predictions),
        Form("instances", lambda case, rows: _json(case, instances=rows), _predictions),
    ],
    "items": [
        Form("inputs", lambda case, rows: _json(case, inputs=rows), _predictions),
        Form("instances", lambda case, rows: _json(case, instances=rows), _predictions),
        Form("dataframe_split", _unnamed_split, _predictions),
    ],
    "hints": [Form("inputs", lambda case, rows: _json(case, inputs=rows), _predictions)],
    "messages": [Form("body", lambda case, rows: msgspec.json.encode(rows[0]), lambda case, reply: [reply])],
    "texts": [
        Form("floats", lambda case, rows: _json(case, input=rows, model="bare-embeddings"), _floats, path=EMBEDDINGS),
        Form(
            "base64",
            lambda case, rows: _json(case, input=rows, model="bare-embeddings", encoding_format="base64"),
            _packed,
            path=EMBEDDINGS,
        ),
    ],
}
