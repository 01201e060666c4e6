"""The Open Inference dialect without a server: tensors in, typed rows, outputs back, and every way to get it wrong."""

from __future__ import annotations

import base64
import json
import math
import struct
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from steelyard.errors import BadRequest, InvalidParameter, ModelFailed
from steelyard.protocols.inputs import Inputs, Records
from steelyard.protocols.mlflow import Column, ColumnType, InputSchema, Tensor
from steelyard.protocols.open_inference import (
    HEADER_LENGTH,
    Decoder,
    InferRequest,
    RequestedOutput,
    encode,
    metadata,
    output_name,
)
from steelyard.protocols.query import Answer

IRIS = InputSchema(columns=tuple(Column(name, ColumnType.DOUBLE) for name in "abcd"))
MIXED = InputSchema(
    columns=(
        Column("n", ColumnType.LONG),
        Column("x", ColumnType.DOUBLE),
        Column("s", ColumnType.STRING),
        Column("b", ColumnType.BOOLEAN),
        Column("o", ColumnType.DOUBLE, required=False),
    )
)
DTYPES = {
    "BOOL": "bool", "UINT8": "u1", "UINT16": "u2", "UINT32": "u4", "UINT64": "u8", "INT8": "i1", "INT16": "i2",
    "INT32": "i4", "INT64": "i8", "FP16": "f2", "FP32": "f4", "FP64": "f8",
}  # fmt: skip


def tensor(name: str, datatype: str, shape: list[int], data: Any = None, **parameters: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"name": name, "datatype": datatype, "shape": shape}
    if data is not None:
        made["data"] = data
    if parameters:
        made["parameters"] = parameters
    return made


def body_of(*inputs: dict[str, Any], **fields: Any) -> bytes:
    return json.dumps({"inputs": list(inputs), **fields}).encode()


def decode(schema: InputSchema | None, *inputs: dict[str, Any], tail: bytes = b"", **fields: Any) -> InferRequest:
    head = body_of(*inputs, **fields)
    return Decoder(schema).decode(head + tail, len(head) if tail else None)


def refused(schema: InputSchema | None, *inputs: dict[str, Any], tail: bytes = b"", **fields: Any) -> str:
    with pytest.raises(BadRequest) as caught:
        decode(schema, *inputs, tail=tail, **fields)
    message = caught.value.message
    assert message.endswith(".")
    assert "\n" not in message
    return message


def columns(inputs: Inputs) -> dict[Any, list[Any]]:
    return {name: array.tolist() for name, array in zip(inputs.names, inputs.arrays, strict=True)}


def of_type(kind: ColumnType, *, required: bool = True) -> InputSchema:
    return InputSchema(columns=(Column("v", kind, required),))


def value_as(kind: ColumnType, datatype: str, data: list[Any], **parameters: Any) -> list[Any]:
    request = decode(of_type(kind), tensor("v", datatype, [len(data)], data, **parameters))
    return columns(request.inputs)["v"]


# --- the ways to send rows


@pytest.mark.parametrize("data", [[1, 2, 3, 4, 5, 6, 7, 8.5], [[1, 2, 3, 4], [5, 6, 7, 8.5]]], ids=["flat", "nested"])
@pytest.mark.parametrize("datatype", ["FP64", "FP32", "FP16"])
def test_one_table_under_any_name_holds_all_columns_in_the_signatures_order(data, datatype):
    inputs = decode(IRIS, tensor("whatever", datatype, [2, 4], data)).inputs
    assert inputs.names == ("a", "b", "c", "d")
    assert inputs.columnar
    assert inputs.matrix is not None
    assert inputs.matrix.dtype == np.float64
    assert inputs.matrix.flags.c_contiguous
    assert inputs.matrix.tolist() == [[1, 2, 3, 4], [5, 6, 7, 8.5]]


@pytest.mark.parametrize("shape", [[2], [2, 1]])
def test_one_tensor_per_column_is_found_by_name_in_any_order(shape):
    tensors = [tensor(name, "FP64", shape, [place, place + 0.5]) for place, name in enumerate("abcd")]
    inputs = decode(IRIS, *reversed(tensors)).inputs
    assert inputs.names == ("a", "b", "c", "d")
    assert inputs.matrix is not None
    assert inputs.matrix.tolist() == [[0, 1, 2, 3], [0.5, 1.5, 2.5, 3.5]]


def test_columns_of_different_types_keep_them():
    inputs = decode(
        MIXED,
        tensor("s", "BYTES", [2, 1], ["é", "b"]),
        tensor("b", "BOOL", [2], [True, False]),
        tensor("n", "INT64", [2], [2**53 + 1, -1]),
        tensor("x", "INT32", [2], [1, 2]),
    ).inputs
    assert inputs.matrix is None
    assert inputs.names == ("n", "x", "s", "b")
    assert [array.dtype.kind for array in inputs.parts] == ["i", "f", "O", "b"]
    assert columns(inputs) == {"n": [2**53 + 1, -1], "x": [1.0, 2.0], "s": ["é", "b"], "b": [True, False]}


def test_an_optional_column_may_be_absent_and_is_there_when_all_missing():
    required = [
        tensor("n", "INT64", [1], [1]),
        tensor("x", "FP64", [1], [1]),
        tensor("s", "BYTES", [1], ["t"]),
        tensor("b", "BOOL", [1], [True]),
    ]
    assert "o" not in decode(MIXED, *required).inputs.names
    assert np.isnan(decode(MIXED, *required, tensor("o", "FP64", [1], [None])).inputs.parts[-1]).all()
    assert decode(MIXED, *required, tensor("o", "FP64", [1], [2])).inputs.names[-1] == "o"


def test_null_is_a_missing_number_in_floats_of_every_width():
    for datatype in ("FP64", "FP32", "FP16"):
        matrix = decode(IRIS, tensor("x", datatype, [1, 4], [1, None, 3, 4])).inputs.matrix
        assert matrix is not None
        assert np.isnan(matrix[0, 1])
        assert matrix[0, 0] == 1


def test_unknown_tensors_are_ignored_as_unknown_columns_are():
    tensors = [tensor(name, "FP64", [1], [1]) for name in "abcdz"]
    assert decode(IRIS, *tensors).inputs.names == ("a", "b", "c", "d")


def test_columns_without_names_go_by_place_or_by_the_metadatas_names():
    schema = InputSchema(columns=(Column(None, ColumnType.DOUBLE), Column(None, ColumnType.DOUBLE)))
    by_place = decode(schema, tensor("p", "FP64", [1], [1]), tensor("q", "FP64", [1], [2])).inputs
    by_name = decode(schema, tensor("input-1", "FP64", [1], [2]), tensor("input-0", "FP64", [1], [1])).inputs
    table = decode(schema, tensor("t", "FP64", [1, 2], [1, 2])).inputs
    for inputs in (by_place, by_name, table):
        assert inputs.names == (0, 1)
        assert columns(inputs) == {0: [1.0], 1: [2.0]}
    assert "2 inputs, not 1" in refused(schema, tensor("p", "FP64", [1], [1]))


def test_tensors_go_to_the_signatures_tensors_with_dtype_and_shape():
    schema = InputSchema(tensors=(Tensor("image", "float32", (-1, 2, 2)), Tensor("mask", "bool", (-1,))))
    inputs = decode(
        schema, tensor("mask", "BOOL", [1, 1], [True]), tensor("image", "FP64", [1, 2, 2], [[[1, 2], [3, 4]]])
    ).inputs
    assert inputs.names == ("image", "mask")
    assert not inputs.columnar
    assert inputs.parts[0].dtype == np.float32
    assert inputs.parts[0].shape == (1, 2, 2)
    assert inputs.parts[1].tolist() == [True]
    assert "shape [-1, 2, 2]" in refused(
        schema, tensor("mask", "BOOL", [1], [True]), tensor("image", "FP32", [1, 4], [1, 2, 3, 4])
    )
    assert "'image'" in refused(schema, tensor("mask", "BOOL", [1], [True]))


def test_the_only_unnamed_tensor_takes_any_name():
    schema = InputSchema(tensors=(Tensor(None, "int64", (-1, 3)),))
    inputs = decode(schema, tensor("x", "FP32", [1, 3], [1, 2, 3])).inputs
    assert inputs.names == (None,)
    assert inputs.parts[0].dtype == np.int64
    assert "integers" in refused(schema, tensor("x", "FP32", [1, 3], [1, 2, 3.5]))
    assert "one input" in refused(schema, tensor("x", "FP32", [1, 3], [1, 2, 3]), tensor("y", "FP32", [1], [1]))


def test_without_a_signature_the_model_gets_what_was_sent():
    alone = decode(None, tensor("x", "INT8", [2, 2], [1, 2, 3, 4])).inputs
    assert (alone.names, alone.columnar) == ((None,), False)
    assert alone.parts[0].dtype == np.int8
    several = decode(None, tensor("x", "FP32", [1], [1]), tensor("y", "BYTES", [1], ["t"])).inputs
    assert (several.names, several.columnar) == (("x", "y"), False)
    frame = decode(None, tensor("x", "FP32", [1, 1], [1]), parameters={"content_type": "pd"}).inputs
    assert (frame.names, frame.columnar, frame.parts[0].shape) == (("x",), True, (1,))
    named = decode(None, tensor("x", "FP32", [1, 1], [1]), parameters={"content_type": "dict"}).inputs
    assert (named.names, named.columnar) == (("x",), False)


# --- what clients of MLServer send


def test_a_frame_as_mlservers_client_encodes_it():
    request = decode(
        InputSchema(columns=(Column("First Name", ColumnType.STRING), Column("Age", ColumnType.INTEGER))),
        tensor("First Name", "BYTES", [2, 1], ["Joanne", "Michael"], content_type="str"),
        tensor("Age", "INT32", [2, 1], [34, 22]),
        parameters={"content_type": "pd"},
    )
    assert columns(request.inputs) == {"First Name": ["Joanne", "Michael"], "Age": [34, 22]}
    assert request.params is None


def test_content_types_say_what_bytes_are():
    raw = b"\x00\xff"
    coded = base64.b64encode(raw).decode()
    assert value_as(ColumnType.BINARY, "BYTES", [coded], content_type="base64") == [raw]
    assert value_as(ColumnType.BINARY, "BYTES", [coded]) == [raw]
    assert value_as(ColumnType.BINARY, "BYTES", ["abc"], content_type="str") == [b"abc"]
    assert value_as(ColumnType.STRING, "BYTES", ["YWJj"], content_type="base64") == ["abc"]
    assert value_as(ColumnType.STRING, "BYTES", ["YWJj"]) == ["YWJj"]
    for kind in (None, "datetime"):
        parameters = {"content_type": kind} if kind else {}
        moments = value_as(ColumnType.DATETIME, "BYTES", ["2024-01-01T02:00:00+02:00"], **parameters)
        assert moments == [1704067200 * 10**9]
    assert value_as(ColumnType.OTHER, "BYTES", ['{"k": [1]}', "null"], content_type="pd_json") == [{"k": [1]}, None]
    assert value_as(ColumnType.OTHER, "BYTES", ["plain"], content_type="str") == ["plain"]
    assert "base64" in refused(of_type(ColumnType.STRING), tensor("v", "BYTES", [1], ["*"], content_type="base64"))
    assert "JSON" in refused(of_type(ColumnType.OTHER), tensor("v", "BYTES", [1], ["{"]))


def test_a_column_of_arrays_takes_a_tensor_with_more_dimensions():
    inputs = decode(of_type(ColumnType.OTHER), tensor("v", "FP64", [2, 3], [1, 2, 3, 4, 5, 6])).inputs
    assert columns(inputs) == {"v": [[1, 2, 3], [4, 5, 6]]}


def test_parameters_that_are_not_the_protocols_are_the_models():
    request = decode(
        IRIS,
        tensor("x", "FP64", [1, 4], [1, 2, 3, 4]),
        id="r-1",
        parameters={"temperature": 0.5, "content_type": "np", "sequence_id": 3, "priority": 1, "triton_x": 1},
    )
    assert request.params == {"temperature": 0.5}
    assert request.id == "r-1"


# --- numbers are exact or refused


@pytest.mark.parametrize(
    ("kind", "datatype", "data", "expected"),
    [
        (ColumnType.DOUBLE, "INT64", [3], [3.0]),
        (ColumnType.DOUBLE, "UINT64", [2**64 - 1], [float(2**64 - 1)]),
        (ColumnType.DOUBLE, "FP32", [0.5], [0.5]),
        (ColumnType.FLOAT, "FP64", [0.5], [0.5]),
        (ColumnType.FLOAT, "INT8", [-3], [-3.0]),
        (ColumnType.LONG, "FP64", [3.0, -4.0], [3, -4]),
        (ColumnType.LONG, "UINT8", [255], [255]),
        (ColumnType.LONG, "INT64", [-(2**63), 2**63 - 1], [-(2**63), 2**63 - 1]),
        (ColumnType.INTEGER, "INT64", [2**31 - 1], [2**31 - 1]),
        (ColumnType.INTEGER, "INT32", [7.0], [7]),
        (ColumnType.BOOLEAN, "BOOL", [True, False], [True, False]),
    ],
)
def test_another_datatype_than_the_columns_is_taken_when_it_is_exact(kind, datatype, data, expected):
    assert value_as(kind, datatype, data) == expected


@pytest.mark.parametrize(
    ("kind", "datatype", "data", "words"),
    [
        (ColumnType.LONG, "FP64", [1, 2.5], ["'v'", "row 1", "fraction"]),
        (ColumnType.LONG, "FP64", [1, None], ["'v'", "row 1", "missing"]),
        (ColumnType.LONG, "INT64", [1, None], ["'v'", "row 1", "missing"]),
        (ColumnType.LONG, "UINT64", [2**63], ["'v'", "row 0", "range"]),
        (ColumnType.LONG, "FP64", [2.0**63], ["'v'", "row 0", "range"]),
        (ColumnType.LONG, "BOOL", [True], ["'v'", "integer", "boolean"]),
        (ColumnType.LONG, "BYTES", ["1"], ["'v'", "integer", "string"]),
        (ColumnType.INTEGER, "INT64", [2**31], ["'v'", "range"]),
        (ColumnType.FLOAT, "FP64", [1e40], ["'v'", "range"]),
        (ColumnType.DOUBLE, "BOOL", [True], ["'v'", "number", "boolean"]),
        (ColumnType.DOUBLE, "BYTES", ["1.0"], ["'v'", "number", "string"]),
        (ColumnType.BOOLEAN, "INT8", [1], ["'v'", "true or false", "number"]),
        (ColumnType.BOOLEAN, "BYTES", ["false"], ["'v'", "true or false"]),
        (ColumnType.BOOLEAN, "BOOL", [None], ["'v'", "true or false"]),
        (ColumnType.STRING, "FP64", [1.5], ["'v'", "string", "number"]),
        (ColumnType.DATETIME, "INT64", [1704067200000], ["'v'", "date", "number"]),
        (ColumnType.DATETIME, "BYTES", ["yesterday"], ["'v'", "date"]),
        (ColumnType.BINARY, "BYTES", ["***"], ["'v'", "base64"]),
    ],
)
def test_what_a_column_cannot_hold_is_refused_by_the_one_table(kind, datatype, data, words):
    message = refused(of_type(kind), tensor("v", datatype, [len(data)], data))
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    ("datatype", "data", "words"),
    [
        ("INT8", [300], ["out of range", "INT8"]),
        ("INT8", [-129], ["out of range"]),
        ("UINT8", [-1], ["out of range"]),
        ("UINT64", [-1], ["out of range"]),
        ("UINT64", [2**64], ["out of range"]),
        ("INT64", [2**63], ["out of range"]),
        ("INT64", [10**30], ["out of range"]),
        ("INT32", [1.9], ["fraction", "value 0"]),
        ("INT32", [1, 1e300], ["out of range"]),
        ("INT32", [True], ["integer", "boolean"]),
        ("INT32", ["1"], ["integer", "string"]),
        ("FP32", [1e40], ["out of range", "FP32"]),
        ("FP16", [70000], ["out of range", "FP16"]),
        ("FP64", [1, "2"], ["number", "value 1", "string"]),
        ("FP64", [10**400], ["out of range"]),
        ("FP64", [True], ["number", "boolean"]),
        ("FP64", [[1]], ["number", "array"]),
        ("BOOL", [1], ["true or false", "number"]),
        ("BOOL", ["true"], ["true or false", "string"]),
        ("BYTES", [7], ["string", "number"]),
        ("BF16", [1], ["BF16", "FP64"]),
        ("float64", [1], ["unknown datatype", "FP64"]),
        ("FP64", "abc", ["array", "string"]),
        ("FP64", {"a": 1}, ["array", "object"]),
    ],
)
def test_what_a_datatype_cannot_hold_is_refused_with_the_tensors_name(datatype, data, words):
    message = refused(None, tensor("bad one", datatype, [len(data)], data))
    assert all(word in message for word in (*words, *(["'bad one'"] if data != [10**400] else []))), message


@pytest.mark.parametrize(
    ("made", "word"),
    [
        (tensor("t", "FP64", [2, 2], [1, 2, 3]), "3 values for the shape [2, 2]"),
        (tensor("t", "FP64", [1, 2], [1, 2, 3]), "3 values"),
        (tensor("t", "FP64", [2, 2], [[1, 2], [3]]), "nested"),
        (tensor("t", "FP64", [2, 2], [[1, 2], 3]), "nested"),
        (tensor("t", "FP64", [4], [[1, 2, 3, 4]]), "1 rows"),
        (tensor("t", "FP64", [2, 2], [[[1], [2]], [[3], [4]]]), "array"),
        (tensor("t", "FP64", [0, 4], []), "no values"),
        (tensor("t", "FP64", [2**62, 2**62], []), "0 values"),
        (tensor("t", "FP64", [-1, 4], [1, 2, 3, 4]), "negative"),
        (tensor("t", "FP64", [], [1]), "empty shape"),
        (tensor("t", "FP64", [1] * 40, [1]), "dimensions"),
        (tensor("t", "FP64", [1.5], [1]), "shape"),
        (tensor("t", "FP64", [True], [1]), "shape"),
        (tensor("t", "FP64", "4", [1]), "shape"),
        (tensor("t", "FP64", [1]), "no data"),
        ({"name": "t", "shape": [1], "data": [1]}, "datatype"),
        ({"name": "t", "datatype": "FP64", "data": [1]}, "shape"),
        ({"datatype": "FP64", "shape": [1], "data": [1]}, "Input 0"),
        (tensor("t", "FP64", [1], shared_memory_region="r"), "shared memory"),
    ],
)
def test_shapes_and_fields_that_do_not_fit_are_named(made, word):
    message = refused(None, made)
    assert word in message
    assert "'t'" in message or "name" not in made


def test_the_envelopes_own_faults_have_one_sentence_each():
    for raw, word in [
        (b"", "empty"),
        (b"{", "JSON"),
        (b"[]", "object"),
        (b"{}", "inputs"),
        (b'{"inputs": []}', "no inputs"),
        (b'{"inputs": {}}', "inputs"),
        (b'{"inputs": [7]}', "Input 0"),
        (b'{"inputs": [{"name": "t", "datatype": "FP64", "shape": [1], "data": [NaN]}]}', "JSON"),
        (b"\xff", "UTF-8"),
        (b'{"inputs": ' + b"[" * 50_000, "nested"),
        (b'{"inputs": [{"name": "t", "datatype": "FP64", "shape": [1], "data": ' + b"[" * 50_000, "nested"),
        (b'{"inputs": [{"name": "t", "datatype": "INT64", "shape": [1], "data": [' + b"9" * 5000 + b"]}]}", "range"),
    ]:
        with pytest.raises(BadRequest) as caught:
            Decoder(IRIS).decode(raw)
        assert word in caught.value.message, raw[:40]
    assert "twice" in refused(IRIS, *[tensor("a", "FP64", [1], [1])] * 2)
    assert "'outputs" in refused(IRIS, tensor("x", "FP64", [1, 4], [1, 2, 3, 4]), outputs=[{}])
    x = tensor("x", "FP64", [1, 4], [1, 2, 3, 4])
    assert "twice" in refused(IRIS, x, outputs=[{"name": "p"}, {"name": "p"}])
    assert "classification" in refused(IRIS, x, outputs=[{"name": "p", "parameters": {"classification": 2}}])
    assert "binary_data" in refused(IRIS, x, outputs=[{"name": "p", "parameters": {"binary_data": "yes"}}])
    assert "binary_data_output" in refused(IRIS, x, parameters={"binary_data_output": 1})


def test_missing_and_surplus_tensors_are_listed():
    message = refused(IRIS, tensor("a", "FP64", [1], [1]), tensor("B", "FP64", [1], [1]))
    assert message == (
        "The model needs 'b', 'c', 'd', which the request lacks. The request has 'B', which the model does not know."
    )
    assert "takes 4" in refused(IRIS, tensor("x", "FP64", [1, 3], [1, 2, 3]))
    assert "rows" in refused(
        IRIS, *[tensor(name, "FP64", [1 + (name == "d")], [1] * (1 + (name == "d"))) for name in "abcd"]
    )
    assert "[n] or [n, 1]" in refused(
        IRIS, *[tensor(name, "FP64", [1, 1 + (name == "d")], [1] * (1 + (name == "d"))) for name in "abcd"]
    )


def test_no_message_repeats_a_submitted_value():
    secret = "s3cret-value"
    for kind in ColumnType:
        if kind in (ColumnType.STRING, ColumnType.BINARY, ColumnType.OTHER):
            continue
        assert secret not in refused(of_type(kind), tensor("v", "BYTES", [1], [secret]))
    assert secret not in refused(of_type(ColumnType.OTHER), tensor("v", "BYTES", [1], [secret]))
    assert secret not in refused(None, tensor("v", "FP64", [1], [secret]))


# --- the binary extension


def with_lengths(*elements: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(element)) + element for element in elements)


@pytest.mark.parametrize("datatype", DTYPES)
def test_binary_numbers_are_read_as_they_lie(datatype):
    values = np.array([[0, 1], [1, 0]]).astype(DTYPES[datatype])
    data = values.tobytes()
    inputs = decode(None, tensor("t", datatype, [2, 2], binary_data_size=len(data)), tail=data).inputs
    assert inputs.parts[0].dtype == values.dtype
    assert inputs.parts[0].tolist() == values.tolist()
    assert inputs.parts[0].flags.aligned


def test_binary_and_json_tensors_may_stand_in_one_request():
    doubles = np.array([1.5, 2.5])
    tail = with_lengths(b"\xc3\xa9", b"") + doubles.tobytes()
    request = decode(
        MIXED,
        tensor("s", "BYTES", [2], binary_data_size=len(tail) - 16),
        tensor("n", "INT64", [2], [1, 2]),
        tensor("x", "FP64", [2, 1], binary_data_size=16),
        tensor("b", "BOOL", [2], [True, False]),
        tail=tail,
    )
    assert columns(request.inputs) == {"n": [1, 2], "x": [1.5, 2.5], "s": ["é", ""], "b": [True, False]}


def test_binary_bytes_reach_a_binary_column_untouched():
    raw = b"\x00\xff\xfe"
    tail = with_lengths(raw)
    request = decode(of_type(ColumnType.BINARY), tensor("v", "BYTES", [1], binary_data_size=len(tail)), tail=tail)
    assert columns(request.inputs) == {"v": [raw]}
    coded = with_lengths(base64.b64encode(raw))
    made = tensor("v", "BYTES", [1], binary_data_size=len(coded), content_type="base64")
    assert columns(decode(of_type(ColumnType.BINARY), made, tail=coded).inputs) == {"v": [raw]}
    made = tensor("v", "BYTES", [1], binary_data_size=len(tail))
    assert "UTF-8" in refused(of_type(ColumnType.STRING), made, tail=tail)


@pytest.mark.parametrize(
    ("made", "tail", "word"),
    [
        (tensor("t", "FP64", [2], binary_data_size=8), b"\0" * 8, "not 16"),
        (tensor("t", "FP64", [1], binary_data_size=16), b"\0" * 8, "has 8 left"),
        (tensor("t", "FP64", [1], binary_data_size=8), b"\0" * 9, "1 bytes of binary data that belong"),
        (tensor("t", "FP64", [1], binary_data_size=-8), b"\0" * 8, "whole number"),
        (tensor("t", "FP64", [1], binary_data_size="8"), b"\0" * 8, "whole number"),
        (tensor("t", "FP64", [1], binary_data_size=True), b"\0" * 8, "whole number"),
        (tensor("t", "FP64", [1], [1], binary_data_size=8), b"\0" * 8, "both"),
        (tensor("t", "FP64", [2**40], binary_data_size=8), b"\0" * 8, "not"),
        (tensor("t", "BOOL", [2], binary_data_size=2), b"\1\2", "neither 0 nor 1"),
        (tensor("t", "BYTES", [2**40], binary_data_size=8), b"\0" * 8, "cannot hold"),
        (tensor("t", "BYTES", [2], binary_data_size=8), with_lengths(b"abcd"), "within element 1"),
        (tensor("t", "BYTES", [1], binary_data_size=8), struct.pack("<I", 2**32 - 1) + b"abcd", "within element 0"),
        (tensor("t", "BYTES", [1], binary_data_size=9), with_lengths(b"abcd") + b"x", "after its last"),
        (tensor("t", "BF16", [1], binary_data_size=2), b"\0\0", "BF16"),
    ],
)
def test_binary_sizes_are_checked_before_they_are_used(made, tail, word):
    assert word in refused(None, made, tail=tail)


def test_where_the_json_ends_is_checked():
    body = body_of(tensor("x", "FP64", [1, 4], [1, 2, 3, 4]))
    assert Decoder(IRIS).decode(body, len(body)).inputs.rows == 1
    for length, word in ((len(body) + 1, "says"), (len(body) - 1, "JSON"), (0, "empty")):
        with pytest.raises(BadRequest, match=word):
            Decoder(IRIS).decode(body, length)
    with pytest.raises(BadRequest, match="0 left"):
        Decoder(IRIS).decode(body_of(tensor("x", "FP64", [1, 4], binary_data_size=32)))


# --- the answer


def answer(result: Any, *outputs: RequestedOutput, binary: bool = False, **more: Any) -> Answer:
    request = InferRequest(Inputs((None,), 1), "id-1", outputs, binary)
    return encode(result, request, "m", "m-1", **more)


def rendered(result: Any, **more: Any) -> list[dict[str, Any]]:
    reply = json.loads(answer(result, **more).body)
    assert (reply["model_name"], reply["model_version"], reply["id"]) == ("m", "m-1", "id-1")
    return reply["outputs"]


def unpacked(reply: Answer) -> list[tuple[dict[str, Any], bytes]]:
    """The outputs, and the bytes of each."""
    head_bytes = int(dict(reply.headers)[HEADER_LENGTH])
    assert reply.content_type == "application/octet-stream"
    outputs, start = [], head_bytes
    for output in json.loads(reply.body[:head_bytes])["outputs"]:
        size = output.get("parameters", {}).get("binary_data_size", 0)
        outputs.append((output, reply.body[start : start + size]))
        start += size
    assert start == len(reply.body)
    return outputs


@pytest.mark.parametrize("datatype", DTYPES)
def test_an_array_is_the_output_predict_with_its_own_datatype(datatype):
    values = np.array([[0, 1], [1, 0]]).astype(DTYPES[datatype])
    expected = {"name": "predict", "datatype": datatype, "shape": [2, 2], "data": values.ravel().tolist()}
    assert rendered(values) == [expected]
    ((output, data),) = unpacked(answer(values, binary=True))
    assert data == values.tobytes()
    assert output == {
        "name": "predict", "datatype": datatype, "shape": [2, 2], "parameters": {"binary_data_size": len(data)}
    }  # fmt: skip


def test_several_outputs_keep_their_names():
    arrays = (np.array([1, 2]), np.array([0.5, 1.5]))
    for result in (Records(("label", "score"), arrays), dict(zip(("label", "score"), arrays, strict=True))):
        assert [(output["name"], output["data"]) for output in rendered(result)] == [
            ("label", [1, 2]),
            ("score", [0.5, 1.5]),
        ]
    frame = pd.DataFrame({"label": ["a", "b"], "score": [0.5, None], "when": pd.to_datetime(["2024-01-01", None])})
    label, score, when = rendered(frame)
    assert label == {
        "name": "label", "datatype": "BYTES", "shape": [2], "data": ["a", "b"], "parameters": {"content_type": "str"}
    }  # fmt: skip
    assert (score["datatype"], score["data"]) == ("FP64", [0.5, None])
    assert when["data"][0].startswith("2024-01-01T00:00:00")
    assert when["data"][1] is None
    assert when["parameters"] == {"content_type": "datetime"}
    assert rendered(pd.Series([1, 2], name="y"))[0]["name"] == "y"
    assert rendered(pd.Series([1, 2]))[0]["name"] == "predict"


def test_nan_and_infinity_are_null_in_json_and_themselves_in_binary():
    values = np.array([1.0, np.nan, np.inf, -np.inf])
    assert rendered(values)[0]["data"] == [1.0, None, None, None]
    ((_, data),) = unpacked(answer(values, binary=True))
    assert np.array_equal(np.frombuffer(data), values, equal_nan=True)


@pytest.mark.parametrize(
    ("result", "datatype", "shape", "data", "kind"),
    [
        ([1, 2], "INT64", [2], [1, 2], None),
        ([1, 2.5], "FP64", [2], [1.0, 2.5], None),
        ([True], "BOOL", [1], [True], None),
        ([[1.0, 2.0]], "FP64", [1, 2], [1.0, 2.0], None),
        ([np.float32(1.5)], "FP64", [1], [1.5], None),
        ([np.array([1, 2]), np.array([3, 4])], "INT64", [2, 2], [1, 2, 3, 4], None),
        (3.5, "FP64", [1], [3.5], None),
        (np.int64(3), "INT64", [1], [3], None),
        ("text", "BYTES", [1], ["text"], "str"),
        (["a", "é"], "BYTES", [2], ["a", "é"], "str"),
        (["a", None], "BYTES", [2], ["a", None], "str"),
        (np.array(["a", "b"]), "BYTES", [2], ["a", "b"], "str"),
        ([b"\xff"], "BYTES", [1], ["/w=="], "base64"),
        (np.array([b"ab"]), "BYTES", [1], ["YWI="], "base64"),
        ([1.5, None], "FP64", [2], [1.5, None], None),
        (np.array([1, None], dtype=object), "BYTES", [2], ["1", "null"], "pd_json"),
        (np.array([True, None], dtype=object), "BYTES", [2], ["true", "null"], "pd_json"),
        ([{"k": [1]}], "BYTES", [1], ['{"k":[1]}'], "pd_json"),
        ([[1], [1, 2]], "BYTES", [2], ["[1]", "[1,2]"], "pd_json"),
        ([2**70], "BYTES", [1], [str(2**70)], "pd_json"),
        (np.array(["2024-01-01"], dtype="M8[D]"), "BYTES", [1], ["2024-01-01"], "datetime"),
        (np.array([1.5], dtype=">f8"), "FP64", [1], [1.5], None),
        (np.array([1.5], dtype=np.longdouble), "FP64", [1], [1.5], None),
        (np.float64(2.5), "FP64", [1], [2.5], None),
    ],
)
def test_whatever_a_model_returns_has_a_datatype(result, datatype, shape, data, kind):
    (output,) = rendered(result)
    assert (output["datatype"], output["shape"], output["data"]) == (datatype, shape, data)
    assert output.get("parameters", {}).get("content_type") == kind


def test_text_in_binary_has_lengths_and_bytes_stay_as_they_are():
    ((output, data),) = unpacked(answer(["é", ""], binary=True))
    assert data == with_lengths("é".encode(), b"")
    assert output["parameters"] == {"binary_data_size": len(data), "content_type": "str"}
    ((output, data),) = unpacked(answer([b"\xff\x00"], binary=True))
    assert data == with_lengths(b"\xff\x00")
    assert output["parameters"] == {"binary_data_size": len(data)}
    ((output, data),) = unpacked(answer(["a", None], binary=True))
    assert data == with_lengths(b'"a"', b"null")
    assert output["parameters"]["content_type"] == "pd_json"


def test_requested_outputs_come_alone_in_order_and_in_their_own_form():
    result = {"a": np.array([1]), "b": np.array([2.0]), "c": np.array([3])}
    reply = answer(result, RequestedOutput("c", True), RequestedOutput("a", False))
    (c, data), (a, _) = unpacked(reply)
    assert (c["name"], data) == ("c", np.array([3]).tobytes())
    assert (a["name"], a["data"]) == ("a", [1])
    with pytest.raises(InvalidParameter, match=r"'z'; it has 'a', 'b', 'c'"):
        answer(result, RequestedOutput("z", False))
    for name in ("predict", "output-0", "output-1"):
        reply = json.loads(answer(np.array([1]), RequestedOutput(name, False)).body)
        assert reply["outputs"][0]["name"] == name
    with pytest.raises(InvalidParameter, match="predict_proba"):
        answer(np.array([1]), RequestedOutput("predict_proba", False))


def test_binary_is_asked_for_as_a_whole_or_one_by_one():
    x = tensor("x", "FP64", [1, 4], [1, 2, 3, 4])
    plain = decode(IRIS, x)
    assert (plain.outputs, plain.binary) == ((), False)
    every = decode(IRIS, x, parameters={"binary_data_output": True})
    assert (every.outputs, every.binary, every.params) == ((), True, None)
    named = decode(
        IRIS,
        x,
        parameters={"binary_data_output": True},
        outputs=[{"name": "p"}, {"name": "q", "parameters": {"binary_data": False}}],
    )
    assert named.outputs == (RequestedOutput("p", True), RequestedOutput("q", False))


@pytest.mark.parametrize("result", [[{1, 2}], np.array([1j]), {}, pd.DataFrame(), [object()]])
def test_what_the_protocol_cannot_express_is_the_models_fault(result):
    with pytest.raises(ModelFailed):
        answer(result)


# --- metadata


def test_metadata_names_what_requests_may_use():
    outputs = InputSchema(tensors=(Tensor(None, "float32", (-1, 3)),))
    described = metadata("m", ["m-1"], "mlflow_sklearn", MIXED, outputs)
    assert (described["name"], described["versions"], described["platform"]) == ("m", ["m-1"], "mlflow_sklearn")
    assert described["inputs"][0] == {"name": "n", "datatype": "INT64", "shape": [-1, 1]}
    assert described["inputs"][2]["parameters"] == {"content_type": "str"}
    assert described["inputs"][4]["parameters"] == {"optional": True}
    assert described["outputs"] == [{"name": "predict", "datatype": "FP32", "shape": [-1, 3]}]
    assert metadata("m", [], "", None, None)["inputs"] == []
    unnamed = InputSchema(columns=(Column(None, ColumnType.DOUBLE), Column(None, ColumnType.OTHER)))
    assert [item["name"] for item in metadata("m", [], "", unnamed, None)["inputs"]] == ["input-0", "input-1"]


def test_the_only_output_is_called_as_the_signature_says():
    named = InputSchema(columns=(Column("species", ColumnType.LONG),))
    assert output_name(named) == "species"
    assert metadata("m", [], "", None, named)["outputs"][0] == {"name": "species", "datatype": "INT64", "shape": [-1]}
    for unnamed in (None, InputSchema(tensors=(Tensor(None, "int64", (-1,)),)), IRIS):
        assert output_name(unnamed) == "predict"
    reply = json.loads(answer(np.array([1]), output_name="species").body)
    assert reply["outputs"][0]["name"] == "species"


# --- invariants


_NUMERIC = st.sampled_from(sorted(DTYPES)).flatmap(
    lambda name: st.tuples(
        st.just(name),
        hnp.arrays(DTYPES[name], hnp.array_shapes(max_dims=3, max_side=4)),
    )
)


@given(_NUMERIC, st.booleans(), st.booleans())
def test_every_array_survives_the_way_there_and_back(named, binary_in, binary_out):
    datatype, values = named
    data = values.tobytes()
    if binary_in:
        request = decode(None, tensor("t", datatype, list(values.shape), binary_data_size=len(data)), tail=data)
    else:
        flat = [None if isinstance(v, float) and not math.isfinite(v) else v for v in values.ravel().tolist()]
        request = decode(None, tensor("t", datatype, list(values.shape), flat))
    (received,) = request.inputs.parts
    assert received.dtype == values.dtype
    finite = np.isfinite(values) if values.dtype.kind == "f" and not binary_in else np.ones(values.shape, bool)
    assert received[finite].tobytes() == values[finite].tobytes()
    if values.dtype.kind == "f":
        assert np.isnan(received[~finite]).all()
    request.binary = binary_out
    reply = encode(received, request, "m")
    if binary_out:
        assert unpacked(reply)[0][1] == received.tobytes()
    else:
        (output,) = json.loads(reply.body)["outputs"]
        back = np.array(output["data"], dtype=DTYPES[datatype]).reshape(output["shape"])
        kept = np.isfinite(received) if values.dtype.kind == "f" else np.ones(values.shape, bool)
        assert back[kept].tobytes() == received[kept].tobytes()


_SCALAR = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
_JSON = _SCALAR | st.lists(_SCALAR, max_size=4) | st.dictionaries(st.text(max_size=3), _SCALAR, max_size=2)
_ANY_TENSOR = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["a", "b", "c", "d", "v", "x"]),
        "datatype": st.sampled_from([*DTYPES, "BYTES", "BF16"]),
        "shape": st.lists(st.integers(-1, 4), max_size=3),
    },
    optional={
        "data": st.lists(_JSON, max_size=5) | _JSON,
        "parameters": st.fixed_dictionaries(
            {},
            optional={
                "binary_data_size": st.integers(-1, 40),
                "content_type": st.sampled_from(["pd", "base64", "str", 1]),
            },
        ),
    },
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from([None, IRIS, MIXED, InputSchema(tensors=(Tensor("a", "float32", (-1, 2)),))])
    | st.sampled_from(ColumnType).map(of_type),
    st.lists(_ANY_TENSOR, max_size=5),
    st.binary(max_size=40),
)
def test_whatever_comes_is_rows_or_a_sentence(schema, tensors, tail):
    head = json.dumps({"inputs": tensors}).encode()
    try:
        inputs = Decoder(schema).decode(head + tail, len(head)).inputs
    except BadRequest as error:
        message = error.message
    else:
        message = "."
        assert inputs.rows >= 1
        assert len(inputs.names) == len(inputs.arrays)
        assert all(len(array) == inputs.rows for array in inputs.arrays)
    assert message.endswith(".")
