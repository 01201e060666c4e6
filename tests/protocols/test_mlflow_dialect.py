"""The faults of other scoring servers (silent corruption, 500 for a client's mistake), each as a case."""

import base64
import datetime
import json
import math
from functools import partial

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.errors import BadRequest, InvalidParameter, SteelyardError
from steelyard.protocols.media import Media
from steelyard.protocols.mlflow import Format, MlflowCodec, parse_invocation, to_model_input

COLUMNS = [
    ("a", "long", True),
    ("b", "double", True),
    ("c", "string", True),
    ("i", "integer", True),
    ("f", "float", False),
    ("e", "boolean", False),
    ("d", "datetime", False),
    ("x", "binary", False),
]
SCHEMA = MlflowCodec(json.dumps([{"name": n, "type": t, "required": r} for n, t, r in COLUMNS]))
ROW = {"a": 1, "b": 2.5, "c": "s", "i": 7}
TENSOR = MlflowCodec('[{"type":"tensor","tensor-spec":{"dtype":"float32","shape":[-1,2]}}]')
TENSORS = MlflowCodec(
    '[{"type":"tensor","name":"x","tensor-spec":{"dtype":"int64","shape":[-1]}},'
    '{"type":"tensor","name":"y","tensor-spec":{"dtype":"float64","shape":[-1,2]}}]'
)


FREE = MlflowCodec(None)


def payload(body, codec=SCHEMA, media=Media.JSON):
    """What a model gets of the body."""
    decoded = codec.decode(body if isinstance(body, bytes) else json.dumps(body).encode(), media)
    return decoded.free if decoded.inputs is None else to_model_input(decoded.inputs, codec.schema)


def every_format(**changes):
    row = {**ROW, **changes}
    yield {"dataframe_records": [row]}
    yield {"dataframe_split": {"columns": list(row), "data": [list(row.values())]}}
    yield {"instances": [row]}
    yield {"inputs": [row]}
    yield {"inputs": {name: [value] for name, value in row.items()}}


def test_all_formats_give_the_same_typed_frame():
    frames = [payload(body) for body in every_format(e=True, d="2024-01-01T00:00:00", f=0.5, x="AQI=")]
    csv = b"a,b,c,i,f,e,d,x\n1,2.5,s,7,0.5,true,2024-01-01T00:00:00,AQI=\n"
    frames.append(payload(csv, media=Media.CSV))
    for frame in frames:
        pd.testing.assert_frame_equal(frame, frames[0])
    assert [str(dtype) for dtype in frames[0].dtypes][:2] == ["int64", "float64"]
    assert frames[0]["i"].dtype == np.int32
    assert frames[0]["f"].dtype == np.float32
    assert frames[0]["e"].dtype == np.bool_
    assert frames[0]["d"].dtype == "datetime64[ns]"
    assert frames[0]["x"][0] == b"\x01\x02"


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("a", 1.5),
        ("a", 2**63),
        ("a", -(2**63) - 1),
        ("a", "1"),
        ("a", True),
        ("a", None),
        ("a", [1]),
        ("i", 2**31),
        ("i", 1.5),
        ("b", "NaN"),
        ("b", True),
        ("b", "2.5"),
        ("b", 10**400),
        ("f", 1e40),
        ("e", "false"),
        ("e", 2),
        ("e", 0),
        ("d", 1704067200000),
        ("d", "yesterday"),
        ("d", "0001-01-01T00:00:00"),
        ("x", "***"),
        ("x", 5),
        ("c", 5),
        ("c", {"a": 1}),
    ],
)
def test_a_value_that_the_type_cannot_hold_is_400_in_every_format_and_names_the_column(column, value):
    for body in every_format(**{column: value}):
        with pytest.raises(BadRequest) as caught:
            payload(body)
        if value != 10**400:
            assert caught.value.param == column
            assert column in caught.value.message
        assert caught.value.status == 400


def test_csv_follows_the_same_table_as_json():
    good = "a,b,c,i\n{},2.5,s,7\n"
    assert payload(good.format(1).encode(), media=Media.CSV)["a"][0] == 1
    for bad in ("1.5", "x", str(2**63), ""):
        with pytest.raises(BadRequest, match="'a'"):
            payload(good.format(bad).encode(), media=Media.CSV)
    frame = payload(b"a,b,c,i,e\n1,,s,7,False\n2,1e3,t,8,true\n", media=Media.CSV)
    assert math.isnan(frame["b"][0])
    assert frame["e"].tolist() == [False, True]


def test_missing_values_stay_missing():
    frame = payload({"dataframe_records": [{**ROW, "b": None, "e": None, "d": None}, {**ROW, "e": True}]})
    assert math.isnan(frame["b"][0])
    assert frame["e"].tolist() == [None, True]
    assert frame["d"].isna().all()


def test_aware_times_become_naive_utc():
    for text in ("2024-01-01T00:00:00Z", "2024-01-01T02:00:00+02:00", "2024-01-01"):
        frame = payload({"dataframe_records": [{**ROW, "d": text}]})
        assert frame["d"][0].to_pydatetime() == datetime.datetime(2024, 1, 1)


def test_integral_floats_are_integers_and_any_integer_is_a_double():
    frame = payload({"dataframe_records": [{**ROW, "a": 3.0, "b": 2**60}]})
    assert frame["a"].tolist() == [3]
    assert frame["b"].tolist() == [float(2**60)]


def test_column_order_is_the_signatures_and_unknown_columns_are_dropped():
    frame = payload({"dataframe_records": [{"z": 1, "c": "s", "i": 7, "b": 1, "a": 2}]})
    assert list(frame.columns) == ["a", "b", "c", "i"]


def test_a_missing_column_is_named_together_with_those_the_model_does_not_know():
    row = {"a": 1, "B": 2.5, "i": 7}
    for body in ({"dataframe_records": [row]}, {"dataframe_split": {"columns": list(row), "data": [[1, 2.5, 7]]}}):
        with pytest.raises(InvalidParameter) as caught:
            payload(body)
        assert caught.value.param == "b"
        assert caught.value.message == (
            "The model needs columns 'b', 'c', which the data lacks. "
            "The data has column 'B', which the model does not know."
        )


def test_empty_tables_are_refused_in_every_format():
    names = [name for name, _, _ in COLUMNS]
    for body in (
        {"dataframe_split": {"columns": names, "data": []}},
        {"dataframe_records": []},
        {"instances": []},
        {"inputs": []},
        {"inputs": {}},
        {"inputs": {name: [] for name in names}},
    ):
        with pytest.raises(BadRequest):
            payload(body)
    with pytest.raises(BadRequest, match="no rows"):
        payload({"inputs": []}, TENSOR)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"   ",
        b"null",
        b"[]",
        b"[[1,2]]",
        b'"text"',
        b"{}",
        b"{'a': 1}",
        b"\xff\xfe{}",
        b'{"inputs": "\xff"}',
        b'{"inputs": [NaN]}',
        b'{"inputs": [Infinity]}',
        b'{"inputs": 1e999}',
        b'{"inputs": "\\ud800"}',
        b"[" * 100_000,
        b'{"inputs": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"inputs": ' + b"9" * 5000 + b"}",
        b'{"data": [1]}',
        b'{"inputs": [1], "instances": [1]}',
        b'{"inputs": null}',
        b'{"instances": {"a": [1]}}',
        b'{"dataframe_split": []}',
        b'{"dataframe_split": {"columns": ["a"]}}',
        b'{"dataframe_split": {"columns": ["a"], "data": [[1, 2]]}}',
        b'{"dataframe_split": {"columns": ["a"], "data": [1]}}',
        b'{"dataframe_split": {"columns": ["a", "a"], "data": [[1, 2]]}}',
        b'{"dataframe_split": {"columns": ["a"], "data": [[1]], "index": [1, 2]}}',
        b'{"dataframe_split": {"columns": ["a"], "data": [[1]], "rows": []}}',
        b'{"dataframe_records": {"a": [1]}}',
        b'{"dataframe_records": [[1]]}',
        b'{"inputs": [1], "params": [1]}',
        b'{"inputs": [1], "client_request_id": 5}',
        b'{"inputs": [1], "stream": "yes"}',
    ],
)
def test_a_malformed_envelope_is_400_with_one_sentence(body):
    with pytest.raises(BadRequest) as caught:
        parse_invocation(body, Media.JSON)
    assert caught.value.status == 400
    assert caught.value.message.endswith(".")
    assert len(caught.value.message) < 200


def test_params_and_request_id_are_read():
    invocation = parse_invocation(
        b'{"inputs": [1], "params": {"k": 2}, "client_request_id": "r", "extra": 1}', Media.JSON
    )
    assert (invocation.format, invocation.data) == (Format.INPUTS, [1])
    assert invocation.params == {"k": 2}
    assert invocation.client_request_id == "r"
    assert not invocation.stream


def test_chat_like_bodies_pass_unwrapped():
    body = {"messages": [{"role": "user", "content": "hi"}], "stream": True, "custom": 1}
    invocation = parse_invocation(json.dumps(body).encode(), Media.JSON)
    assert invocation.format is Format.UNWRAPPED
    assert invocation.stream
    assert payload(body, FREE) == body


def test_duplicate_keys_take_the_last_value():
    assert parse_invocation(b'{"inputs": [1], "inputs": [2]}', Media.JSON).data == [2]


def test_a_tensor_keeps_its_dtype_and_refuses_what_would_change():
    array = payload({"inputs": [[1, 2], [3, 4.5]]}, TENSOR)
    assert array.dtype == np.float32
    assert array.tolist() == [[1, 2], [3, 4.5]]
    assert np.isnan(payload({"inputs": [[1, None]]}, TENSOR)[0, 1])
    for bad in ([[1e40, 1]], [["1", "2"]], [[True, False]], [[1, 2], [3]], [[{"a": 1}, 2]], "text"):
        with pytest.raises(BadRequest, match="inputs"):
            payload({"inputs": bad}, TENSOR)


def test_named_tensors_come_by_column_or_by_row():
    expected = {"x": [1, 2], "y": [[1, 2], [3, 4]]}
    for body in ({"inputs": expected}, {"instances": [{"x": 1, "y": [1, 2]}, {"x": 2, "y": [3, 4]}]}):
        result = payload(body, TENSORS)
        assert {name: array.tolist() for name, array in result.items()} == expected
        assert result["x"].dtype == np.int64
    for bad in ({"x": [1.5], "y": [[1, 2]]}, {"x": [1]}, {"x": [2**70], "y": [[1, 2]]}):
        with pytest.raises(BadRequest):
            payload({"inputs": bad}, TENSORS)


def test_without_a_signature_numpy_and_pandas_decide():
    assert payload({"inputs": [[1, 2], [3, 4]]}, FREE).tolist() == [[1, 2], [3, 4]]
    assert {k: v.tolist() for k, v in payload({"inputs": {"a": [1], "b": ["x"]}}, FREE).items()} == {
        "a": [1],
        "b": ["x"],
    }
    frame = payload({"dataframe_split": {"columns": ["a", "b"], "data": [[1, "x"]], "index": [9]}}, FREE)
    assert frame.to_dict() == {"a": {9: 1}, "b": {9: "x"}}
    assert payload(b"a,b\n1,x\n", FREE, Media.CSV).to_dict("list") == {"a": [1], "b": ["x"]}


def test_unnamed_columns_go_by_place():
    schema = MlflowCodec('[{"type":"double"},{"type":"long"}]')
    assert payload({"inputs": [[1, 2], [3, 4]]}, schema).dtypes.tolist() == [np.float64, np.int64]
    with pytest.raises(BadRequest, match="Row 1"):
        payload({"inputs": [[1, 2], [3]]}, schema)
    one = MlflowCodec('[{"type":"string"}]')
    assert payload({"inputs": ["a", "b"]}, one)[0].tolist() == ["a", "b"]
    assert payload({"inputs": "a"}, one)[0].tolist() == ["a"]


def test_binary_is_decoded_in_every_format():
    raw = bytes(range(256))
    for body in every_format(x=base64.b64encode(raw).decode()):
        assert payload(body)["x"][0] == raw


def client_error(call):
    """The status of the SteelyardError that the call raises, or None; anything else that it raises fails the test."""
    try:
        call()
    except SteelyardError as error:
        return error.status


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abcdixyz") | st.text(max_size=4), inner)
    ),
    max_leaves=12,
)
NAMES = st.sampled_from(["dataframe_split", "dataframe_records", "instances", "inputs", "params", "messages", "stream"])
SPLIT = st.fixed_dictionaries({"data": JSON}, optional={"columns": JSON, "index": JSON})
BODIES = JSON | st.dictionaries(NAMES, JSON | SPLIT, max_size=2)
SCHEMAS = st.sampled_from([SCHEMA, TENSOR, TENSORS, FREE, MlflowCodec('[{"type":"long"},{"type":"string"}]')])


@given(BODIES, SCHEMAS)
def test_any_json_is_a_payload_or_a_client_error(body, schema):
    assert client_error(lambda: payload(body, schema)) in (None, 400)


@given(st.binary(max_size=60) | st.text(max_size=40).map(str.encode), SCHEMAS)
def test_any_bytes_are_a_payload_or_a_client_error(body, schema):
    for media in Media:
        assert client_error(partial(payload, body, schema, media)) in (None, 400)
