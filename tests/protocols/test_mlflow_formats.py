"""The same rows mean the same typed inputs in every format: JSON in all its layouts, CSV, Arrow and Parquet."""

import csv
import io
import json
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.errors import BadRequest, InvalidParameter, PayloadTooLarge, UnsupportedMediaType
from steelyard.protocols.media import Media
from steelyard.protocols.mlflow import MlflowCodec, arrow_input
from steelyard.protocols.mlflow.general import decode_invocation, decode_table
from steelyard.protocols.mlflow.request import parse_invocation
from steelyard.protocols.mlflow.schema import Column, ColumnType, InputSchema, Tensor
from support.typed_rows import same, table_bodies, tables

ARROW_TYPES = {
    ColumnType.DOUBLE: pa.float64(),
    ColumnType.FLOAT: pa.float32(),
    ColumnType.LONG: pa.int64(),
    ColumnType.INTEGER: pa.int32(),
    ColumnType.BOOLEAN: pa.bool_(),
    ColumnType.STRING: pa.string(),
    ColumnType.BINARY: pa.binary(),
    ColumnType.DATETIME: pa.timestamp("us"),
}


def decode(body, schema, media=Media.JSON):
    if media.is_columnar:
        return decode_table(body, media, schema)
    return decode_invocation(parse_invocation(body, media), schema)


def as_json(body, schema):
    return decode(json.dumps(body).encode(), schema)


def stream(table):
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        for batch in table.to_batches(max_chunksize=2):
            writer.write_batch(batch)
    return sink.getvalue()


def parquet(table):
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def both(table, schema):
    """The table's rows, checked to be the same from Arrow and Parquet."""
    one, other = decode(stream(table), schema, Media.ARROW), decode(parquet(table), schema, Media.PARQUET)
    same(one, other)
    return one


def written_csv(names, rows):
    sink = io.StringIO()
    writer = csv.writer(sink)
    writer.writerow(names)
    writer.writerows([["" if value is None else value for value in row] for row in rows])
    return sink.getvalue().encode()


def arrow_table(inputs, schema):
    """A table of the typed inputs: what a client that has them would send."""
    kinds = {column.name: column.type for column in schema.columns}
    arrays = []
    for name, array in zip(inputs.names, inputs.arrays, strict=True):
        kind = ARROW_TYPES[kinds[name]]
        if kinds[name] is ColumnType.DATETIME:
            arrays.append(pa.array(array).cast(kind))
        else:
            arrays.append(pa.array(array.tolist() if array.dtype.kind == "O" else array, kind))
    return pa.table(arrays, names=list(inputs.names))


@given(tables())
@settings(max_examples=100)
def test_the_same_rows_are_the_same_inputs_in_every_layout_of_json(table):
    schema, rows = table
    names = [column.name for column in schema.columns]
    first, *others = [as_json(body, schema) for body in table_bodies(names, rows)]
    for other in others:
        other.index = first.index
        same(first, other)


@given(tables())
@settings(max_examples=100)
def test_the_same_rows_are_the_same_inputs_in_arrow_and_parquet(table):
    schema, rows = table
    names = [column.name for column in schema.columns]
    expected = as_json({"dataframe_split": {"columns": names, "data": rows}}, schema)
    if expected.names:  # a table without columns has no rows
        same(both(arrow_table(expected, schema), schema), expected)


CSV_VALUES = {ColumnType.STRING: st.text("abc ü,\"'\n", min_size=1, max_size=5)}


@given(st.data())
@settings(max_examples=60)
def test_the_same_rows_are_the_same_inputs_in_csv(data):
    schema, rows = data.draw(tables())
    for place, column in enumerate(schema.columns):  # CSV has no empty text apart from a missing one, no \r in a name
        if column.type in (ColumnType.STRING, ColumnType.BINARY):
            for row in rows:
                row[place] = data.draw(CSV_VALUES[ColumnType.STRING]) if column.type is ColumnType.STRING else "AQI="
        for row in rows:
            if column.type is ColumnType.LONG and isinstance(row[place], float):
                row[place] = int(row[place])
    names = [f"c{place}" for place in range(len(schema.columns))]
    schema = InputSchema(
        tuple(Column(name, old.type, old.required) for name, old in zip(names, schema.columns, strict=True))
    )
    if all(value is None for row in rows for value in row):
        return  # nothing to tell a row by
    body = written_csv(names, rows)
    same(decode(body, schema, Media.CSV), as_json({"dataframe_split": {"columns": names, "data": rows}}, schema))


def test_wide_integers_keep_every_digit_in_every_format():
    schema = InputSchema((Column("n", ColumnType.LONG), Column("x", ColumnType.DOUBLE)))
    wide = 2**63 - 1
    rows = [[wide, 0.5], [-(2**63), 1], [2**53 + 1, 2]]
    table = pa.table({"n": pa.array([row[0] for row in rows], pa.int64()), "x": [0.5, 1.0, 2.0]})
    decoded = [as_json(body, schema) for body in table_bodies(["n", "x"], rows)]
    decoded += [decode(written_csv(["n", "x"], rows), schema, Media.CSV), both(table, schema)]
    for inputs in decoded:
        assert inputs.parts[0].tolist() == [wide, -(2**63), 2**53 + 1]


def test_nested_columns_are_the_same_in_json_csv_and_arrow():
    schema = MlflowCodec(
        '[{"name":"v","type":"array","items":{"type":"double"}},'
        '{"name":"o","type":"object","properties":{"a":{"type":"long"},"t":{"type":"array","items":{"type":"string"}}}},'
        '{"name":"m","type":"map","values":{"type":"long"}}]'
    ).schema
    rows = [[[1, 2.5], {"a": 1, "t": ["x"]}, {"k": 2}], [[], {"a": 2, "t": []}, {}]]
    names = ["v", "o", "m"]
    expected = as_json({"dataframe_split": {"columns": names, "data": rows}}, schema)
    records = [dict(zip(names, row, strict=True)) for row in rows]
    for body in ({"dataframe_records": records}, {"instances": records}, {"inputs": records}):
        same(as_json(body, schema), expected)
    same(as_json({"inputs": records[0]}, schema), as_json({"inputs": records[:1]}, schema))
    texts = [[json.dumps(value) for value in row] for row in rows]
    same(decode(written_csv(names, texts), schema, Media.CSV), expected)
    table = pa.table(
        {
            "v": pa.array([row[0] for row in rows], pa.list_(pa.float64())),
            "o": pa.array([row[1] for row in rows]),
            "m": pa.array([list(row[2].items()) for row in rows], pa.map_(pa.string(), pa.int64())),
        }
    )
    same(both(table, schema), expected)


def test_tensors_come_in_tables_too():
    pixels = InputSchema(tensors=(Tensor("image", "float32", (-1, 2, 2)), Tensor("id", "int64", (-1,))))
    expected = as_json({"inputs": {"image": [[[1, 2], [3, 4]]], "id": [7]}}, pixels)
    flat = [{"image": [1, 2, 3, 4], "id": 7}]
    same(as_json({"dataframe_records": flat}, pixels), expected)
    same(as_json({"dataframe_records": [{"image": [[1, 2], [3, 4]], "id": 7}]}, pixels), expected)
    same(both(pa.Table.from_pylist(flat), pixels), expected)
    table = InputSchema(tensors=(Tensor(None, "float64", (-1, 2)),))
    expected = as_json({"inputs": [[1, 2], [3, 4]]}, table)
    same(as_json({"dataframe_split": {"columns": ["a", "b"], "data": [[1, 2], [3, 4]]}}, table), expected)
    same(decode(b"a,b\n1,2\n3,4\n", table, Media.CSV), expected)
    same(both(pa.table({"a": [1, 3], "b": [2.0, 4.0]}), table), expected)
    with pytest.raises(InvalidParameter, match="shape"):
        as_json({"dataframe_records": [{"image": [1, 2, 3], "id": 7}]}, pixels)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"inputs": [[1, 2, 3]]}, r"shape \[-1, 2\]"),
        ({"inputs": [1, 2]}, "shape"),
        ({"inputs": [[[1, 2]]]}, "shape"),
        ({"inputs": [[1, "x"]]}, "expected a number, got a string"),
        ({"inputs": [[1, 2], [1, True]]}, "row 1: expected a number, got a boolean"),
        ({"inputs": [[1], [2, 3]]}, "regular"),
        ({"inputs": [[]]}, "shape"),
        ({"inputs": []}, "no rows"),
        ({"instances": [{"a": 1}, {"b": 1}]}, "Row 1"),
    ],
)
def test_a_tensor_of_another_shape_or_type_is_refused(given, named):
    with pytest.raises(BadRequest, match=named):
        as_json(given, InputSchema(tensors=(Tensor(None, "float32", (-1, 2)),)))


NESTED = (
    '[{"name":"v","type":"array","items":{"type":"long"}},{"name":"o","required":false,"type":"object","properties":'
    '{"a":{"type":"double"},"b":{"type":"array","items":{"type":"datetime"},"required":false}}}]'
)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"v": 1}, "Column 'v', row 1: expected an array, got a number."),
        ({"v": [1, 2.5]}, "Column 'v', row 1: at '[1]' expected an integer, got a fraction."),
        ({"v": [None]}, "Column 'v', row 1: at '[0]' expected an integer, got null."),
        ({"v": None}, "Column 'v', row 1: expected an array, got null."),
        ({"v": [2**63]}, "Column 'v', row 1: at '[0]' the integer is out of range for type long."),
        ({"o": [1]}, "Column 'o', row 1: expected an object, got an array."),
        ({"o": {"b": []}}, "Column 'o', row 1: the field 'a' is missing."),
        ({"o": {"a": "x"}}, "Column 'o', row 1: at 'a' expected a number, got a string."),
        ({"o": {"a": 1, "c": 2}}, "Column 'o', row 1: the field 'c' is unknown."),
        ({"o": {"a": 1, "b": ["soon"]}}, "Column 'o', row 1: at 'b[0]' expected an ISO 8601 date and time."),
    ],
)
def test_a_fault_inside_of_a_value_names_column_row_and_place(row, message):
    good = {"v": [1], "o": {"a": 1.5}}
    with pytest.raises(InvalidParameter) as caught:
        as_json({"dataframe_records": [good, {**good, **row}]}, MlflowCodec(NESTED).schema)
    assert caught.value.message == message


def test_arrow_values_follow_the_same_table_as_json():
    schema = InputSchema((Column("a", ColumnType.LONG), Column("f", ColumnType.FLOAT, required=False)))
    good = pa.table({"a": pa.array([1.0, 2.0]), "f": pa.array([1, 2], pa.int8()), "extra": ["x", "y"]})
    inputs = both(good, schema)
    assert [part.tolist() for part in inputs.parts] == [[1, 2], [1.0, 2.0]]
    missing = both(pa.table({"a": pa.array([1], pa.uint8()), "f": pa.array([None], pa.float64())}), schema)
    assert np.isnan(missing.parts[1]).all()
    for column, named in [
        (pa.array([1, 2.5]), "row 1: expected an integer, got a fraction"),
        (pa.array([1, None]), "row 1: an integer column cannot hold a missing value"),
        (pa.array([1, 2**63], pa.uint64()), "row 1: the integer is out of range"),
        (pa.array(["1", "2"]), "row 0: expected an integer, got a string"),
        (pa.array([True, False]), "row 0: expected an integer, got a boolean"),
        (pa.array([0, 1], pa.timestamp("s")), "row 0: expected an integer, got a date"),
        (pa.array([b"x", b"y"]), "row 0: expected an integer, got binary data"),
    ]:
        with pytest.raises(InvalidParameter, match=f"Column 'a', {named}"):
            both(pa.table({"a": column}), schema)
    for missing in (pa.table({"f": [1.0]}), pa.table({"A": [1]})):
        with pytest.raises(InvalidParameter, match="needs column 'a'"):
            both(missing, schema)


def test_dates_strings_and_decimals_of_arrow_arrive():
    import datetime
    import decimal

    schema = InputSchema(
        (Column("t", ColumnType.DATETIME), Column("s", ColumnType.STRING), Column("x", ColumnType.DOUBLE))
    )
    nanoseconds = np.array(["2024-01-01T00:00:00.123456789"], "datetime64[ns]")
    for moments, expected in [
        (pa.array(nanoseconds), nanoseconds),
        (pa.array([datetime.date(2024, 1, 1)]), np.array(["2024-01-01"], "datetime64[ns]")),
        (pa.array([0], pa.timestamp("s", "Europe/Berlin")), np.array([0], "datetime64[ns]")),
    ]:
        table = pa.table({"t": moments, "s": pa.array(["ü"]).dictionary_encode(), "x": [decimal.Decimal("1.50")]})
        inputs = both(table, schema)
        assert np.array_equal(inputs.parts[0], expected)
        assert inputs.parts[1].tolist() == ["ü"]
        assert inputs.parts[2].tolist() == [1.5]
    same(
        both(pa.table({"t": pa.array(nanoseconds), "s": ["x"], "x": [1]}), schema),
        as_json({"inputs": [{"t": "2024-01-01T01:00:00.123456789+01:00", "s": "x", "x": 1}]}, schema),
    )


def test_a_frame_that_pandas_wrote_is_read_without_its_index():
    schema = InputSchema((Column("a", ColumnType.DOUBLE), Column("s", ColumnType.STRING)))
    frame = pd.DataFrame({"s": ["x", None], "a": [1.0, np.nan]}, index=[5, 9])
    body = frame.to_parquet()
    inputs = decode(body, schema, Media.PARQUET)
    assert inputs.names == ("a", "s")
    assert np.isnan(inputs.parts[0][1])
    assert inputs.parts[1].tolist() == ["x", None]


@pytest.mark.parametrize("media", [Media.ARROW, Media.PARQUET])
def test_a_broken_or_empty_table_is_a_clients_fault(media):
    schema = InputSchema((Column("a", ColumnType.DOUBLE),))
    write = stream if media is Media.ARROW else parquet
    body = write(pa.table({"a": [1.0, 2.0]}))
    for broken in (b"", b"PAR1", body[:-9], body[: len(body) // 2], b"{}", body[::-1]):
        with pytest.raises(BadRequest):
            decode(broken, schema, media)
    with pytest.raises(BadRequest, match="no rows"):
        decode(write(pa.table({"a": pa.array([], pa.float64())})), schema, media)
    with pytest.raises(BadRequest, match="twice"):
        decode(write(pa.table([[1.0], [2.0]], names=["a", "a"])), schema, media)


def test_a_table_that_grows_beyond_all_bounds_is_refused_before_it_is_decoded(monkeypatch):
    schema = InputSchema((Column("a", ColumnType.DOUBLE),))
    monkeypatch.setattr(arrow_input, "_MAX_CELLS", 1000)
    table = pa.table({"a": np.zeros(1001)})
    for media, body in ((Media.ARROW, stream(table)), (Media.PARQUET, parquet(table))):
        with pytest.raises(PayloadTooLarge):
            decode(body, schema, media)


def test_without_pyarrow_such_bodies_are_415(monkeypatch):
    body = stream(pa.table({"a": [1.0]}))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UnsupportedMediaType, match="pyarrow") as caught:
        decode(body, InputSchema((Column("a", ColumnType.DOUBLE),)), Media.ARROW)
    assert caught.value.status == 415


@given(st.binary(max_size=300))
@settings(max_examples=60)
def test_any_bytes_are_a_table_or_a_clients_fault(body):
    for media in (Media.ARROW, Media.PARQUET):
        with pytest.raises(BadRequest):
            decode(body, InputSchema((Column("a", ColumnType.DOUBLE),)), media)
