"""The codec as replica and worker use it: what it makes of each kind of model and body, and how answers leave."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.errors import BadRequest, InvalidParameter, ModelFailed
from steelyard.protocols.inputs import Inputs, Records, join
from steelyard.protocols.media import Media
from steelyard.protocols.mlflow import Format, MlflowCodec, parse_input_schema, render_plain, render_predictions

COLUMNS = '[{"name":"a","type":"double"},{"name":"b","type":"double"}]'
PARAMS = '[{"name":"k","type":"long","default":3,"shape":null}]'
SPLIT = b'{"dataframe_split":{"columns":["b","a"],"data":[[1,2]]}}'


def decode(codec, body, media=Media.JSON):
    return codec.decode(body if isinstance(body, bytes) else json.dumps(body).encode(), media)


def test_typed_rows_come_with_params_stream_and_id():
    codec = MlflowCodec(COLUMNS, PARAMS)
    fast = decode(codec, SPLIT)
    assert fast.inputs.matrix.tolist() == [[2, 1]]
    assert (fast.params, fast.stream, fast.client_request_id, fast.free) == ({"k": 3}, False, None, None)
    body = {"inputs": [{"a": 1, "b": 2}], "params": {"k": 7, "z": 1}, "stream": True, "client_request_id": "r"}
    decoded = decode(codec, body)
    assert decoded.inputs.matrix.tolist() == [[1, 2]]
    assert (decoded.params, decoded.stream, decoded.client_request_id) == ({"k": 7}, True, "r")
    with pytest.raises(InvalidParameter, match="Param 'k'"):
        decode(codec, {**body, "params": {"k": "x"}})


def test_params_of_a_model_that_takes_none_are_ignored():
    assert decode(MlflowCodec(COLUMNS), {"inputs": [{"a": 1, "b": 2}], "params": {"k": 7}}).params is None


def test_csv_and_tables_are_decoded_too():
    import pyarrow as pa

    codec = MlflowCodec(COLUMNS, PARAMS)
    sink = pa.BufferOutputStream()
    table = pa.table({"b": [1.0], "a": [2.0]})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    for body, media in ((b"b,a\n1,2\n", Media.CSV), (sink.getvalue().to_pybytes(), Media.ARROW)):
        decoded = decode(codec, body, media)
        assert decoded.inputs.matrix.tolist() == [[2, 1]]
        assert decoded.params == {"k": 3}
        free = decode(MlflowCodec(None), body, media)
        assert free.inputs is None
        assert free.free.to_dict("list") == {"b": [1], "a": [2]}


def test_a_model_without_a_signature_gets_what_numpy_and_pandas_make_of_it():
    codec = MlflowCodec(None)
    assert decode(codec, {"inputs": [[1, 2]]}).free.tolist() == [[1, 2]]
    assert {name: array.tolist() for name, array in decode(codec, {"inputs": {"a": [1]}}).free.items()} == {"a": [1]}
    assert isinstance(decode(codec, SPLIT).free, pd.DataFrame)
    assert decode(codec, {"dataframe_records": [{"a": 1}]}).inputs is None
    assert not codec.batchable


def test_a_type_hinted_model_gets_its_inputs_as_they_are():
    codec = MlflowCodec('[{"type":"long"}]', None, from_type_hints=True)
    assert decode(codec, {"inputs": [{"x": [1, None]}]}).free == [{"x": [1, None]}]
    for body, media in ((SPLIT, Media.JSON), (b"a\n1\n", Media.CSV), (b"", Media.ARROW)):
        with pytest.raises(BadRequest, match="'inputs'"):
            decode(codec, body, media)


def test_a_chat_like_body_goes_through_with_its_params_taken_out():
    body = {"messages": [{"role": "user", "content": "hi"}], "k": 5, "stream": True, "model": "m"}
    for codec in (MlflowCodec(COLUMNS, PARAMS), MlflowCodec(None, PARAMS)):
        decoded = decode(codec, body)
        assert decoded.format is Format.UNWRAPPED
        assert decoded.params == {"k": 5}
        assert decoded.free == {"messages": body["messages"], "stream": True, "model": "m"}
        assert decoded.stream


@pytest.mark.parametrize(
    ("body", "stream"),
    [
        (SPLIT, False),
        (b'{"inputs":[1],"stream":true}', True),
        (b'{"messages":[],"stream":true}', True),
        (b'{"inputs":[1],"params":{},"extra":[[1]]}', False),
    ],
)
def test_the_envelope_is_checked_before_the_data(body, stream):
    assert MlflowCodec(COLUMNS).check(body, Media.JSON) is stream
    assert MlflowCodec(COLUMNS).check(b"a,b\n", Media.CSV) is False


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"inputs":[1],"instances":[1]}',
        b'{"inputs":null}',
        b'{"inputs":[1],"params":[]}',
        b'{"inputs":[1],"stream":1}',
        b'{"inputs":[1],"client_request_id":1}',
        b'{"inputs":[NaN]}',
        b"[" * 100_000,
    ],
)
def test_a_wrong_envelope_is_refused_as_it_is_by_decode(body):
    codec = MlflowCodec(COLUMNS)
    with pytest.raises(BadRequest) as early:
        codec.check(body, Media.JSON)
    with pytest.raises(BadRequest) as late:
        codec.decode(body, Media.JSON)
    assert early.value.message == late.value.message


@given(st.binary(max_size=60) | st.text(max_size=40).map(str.encode))
def test_any_bytes_are_decoded_or_a_clients_fault(body):
    for codec in (MlflowCodec(COLUMNS, PARAMS), MlflowCodec(None)):
        for media in Media:
            try:
                codec.decode(body, media)
                codec.check(body, media)
            except BadRequest as error:
                assert error.status == 400  # noqa: PT017


def test_a_signature_that_cannot_be_read_says_so():
    for text in ("{", '[{"name":"a","type":"vector"}]', '[{"name":"a"}]', '[{"name":"a","type":"array"}]'):
        with pytest.raises(ValueError):  # noqa: PT011
            parse_input_schema(text)


def test_rows_may_be_joined_unless_the_signature_fixes_their_number():
    fixed = '[{"type":"tensor","tensor-spec":{"dtype":"float32","shape":[1,2]}}]'
    assert MlflowCodec(COLUMNS).batchable
    assert MlflowCodec(fixed.replace("[1,2]", "[-1,2]")).batchable
    assert not MlflowCodec(fixed).batchable
    one = Inputs(("x", "y"), 1, None, (np.zeros(1), np.zeros(2)), columnar=False)
    assert join([one, one]) is None


OUTPUTS = [
    np.array([0.1]),
    np.array([1.0, np.nan, np.inf, -0.0, 1e300]),
    np.array([0.1, np.nan], dtype=np.float32),
    np.array([[1, 2], [3, 4]]),
    np.array([1], dtype=np.int32),
    np.array([True, False]),
    np.array(["a", "ü"]),
    np.array(["a", None], dtype=object),
    np.array([[0.5, 0.25]]),
    np.empty((0, 2)),
    np.array([2**63], dtype=np.uint64),
    np.array(1.5),
    {"label": np.array([1, 2]), "p": np.array([[0.5, 0.5], [1.0, np.nan]])},
]


@pytest.mark.parametrize("output", OUTPUTS, ids=repr)
def test_arrays_are_written_as_lists_of_their_values(output):
    """The direct way says what the slow way says of the same values."""
    slow = {name: part.tolist() for name, part in output.items()} if isinstance(output, dict) else output.tolist()
    codec = MlflowCodec(COLUMNS)
    assert codec.encode(output, Format.SPLIT) == render_predictions(slow)
    assert codec.encode(output, Format.UNWRAPPED) == render_plain(slow)
    assert json.loads(codec.encode(output, Format.SPLIT)).keys() == {"predictions"}


def test_records_are_written_as_a_frame_of_the_same_columns():
    moments = np.array(["2024-01-01", "NaT"], "datetime64[ns]")
    arrays = (np.array([1, 2]), np.array([0.5, np.nan]), np.array(["a", None], dtype=object), moments)
    names = ("n", "x", "s", "t")
    frame = pd.DataFrame(dict(zip(names, arrays, strict=True)))
    assert render_predictions(Records(names, arrays)) == render_predictions(frame)
    assert (
        render_predictions(Records(("v",), (np.zeros((2, 2)),))) == b'{"predictions":[{"v":[0.0,0.0]},{"v":[0.0,0.0]}]}'
    )
    with pytest.raises(ModelFailed, match="same name"):
        render_predictions(Records(("a", "a"), (np.zeros(1), np.zeros(1))))


def test_an_unwritable_string_is_the_models_fault():
    with pytest.raises(ModelFailed):
        render_predictions(np.array(["\ud800"], dtype=object))
