"""What models get of typed inputs: the frame and the arrays that MLflow's own enforcement would give, types and all."""

import copy
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings

from steelyard.protocols.inputs import Inputs
from steelyard.protocols.media import Media
from steelyard.protocols.mlflow import MlflowCodec, to_frame, to_model_input
from steelyard.protocols.mlflow.general import decode_invocation
from steelyard.protocols.mlflow.request import Format, Invocation
from support.typed_rows import same_value, tables, tensors

mlflow_models = pytest.importorskip("mlflow.models.utils")
mlflow_server = pytest.importorskip("mlflow.pyfunc.scoring_server")
from mlflow.types.schema import Schema  # noqa: E402


def signature(*types, required=True):
    return json.dumps([{"name": f"c{place}", "type": kind, "required": required} for place, kind in enumerate(types)])


def mlflows(text, body):
    """What MLflow's server hands to the model: its parsing, then its enforcement."""
    schema = Schema.from_json(text)
    return mlflow_models._enforce_schema(mlflow_server.infer_and_parse_data(body, schema), schema)


def ours(text, body):
    codec = MlflowCodec(text)
    return to_model_input(codec.decode(json.dumps(body).encode(), Media.JSON).inputs, codec.schema)


def same_frame(one, other):
    pd.testing.assert_index_equal(one.index, other.index, exact=True)
    pd.testing.assert_index_equal(one.columns, other.columns, exact=True)
    pd.testing.assert_series_equal(one.dtypes, other.dtypes)
    for name in one.columns:
        if one[name].dtype == object:
            for mine, its in zip(one[name], other[name], strict=True):
                same_value(mine, its)
        else:
            pd.testing.assert_series_equal(one[name], other[name], check_exact=True)


ROWS = {
    "double": [1.5, None, -0.0],
    "float": [1.5, None, 0.1],
    "long": [1, -(2**63), 2**63 - 1],
    "integer": [1, -(2**31), 2**31 - 1],
    "boolean": [True, False, True],
    "string": ["a", "ü", ""],
    "binary": ["AQI=", "", "/w=="],
    "datetime": ["2024-01-01T00:00:00", "1999-12-31", "2024-01-01T00:00:00.123456789"],
}


@pytest.mark.parametrize("kind", ROWS)
def test_every_column_type_is_as_mlflow_gives_it(kind):
    body = {"dataframe_split": {"columns": ["c0"], "data": [[value] for value in ROWS[kind]]}}
    if kind == "datetime":  # pandas wants one form of date in a column
        body["dataframe_split"]["data"] = [["2024-01-01T00:00:00.123456789"], ["1999-12-31T00:00:00.000000000"]]
    same_frame(ours(signature(kind), body), mlflows(signature(kind), body))


def test_a_mixed_table_is_as_mlflow_gives_it_with_its_order_and_index():
    kinds = [kind for kind in ROWS if kind != "datetime"]
    names = [f"c{place}" for place in range(len(kinds))]
    rows = [list(row) for row in zip(*(ROWS[kind] for kind in kinds), strict=True)]
    order = [3, 0, 6, 2, 5, 1, 4]
    shuffled = {"columns": [names[at] for at in order], "data": [[row[at] for at in order] for row in rows]}
    for index in (None, [7, 8, 9], ["a", "b", "c"], [0.5, 1.5, 2.5]):
        body = {"dataframe_split": shuffled if index is None else {**shuffled, "index": index}}
        same_frame(ours(signature(*kinds), body), mlflows(signature(*kinds), body))


@pytest.mark.parametrize(
    ("kind", "values"), [("boolean", [True, None]), ("string", ["a", None]), ("double", [None, 1.5])]
)
def test_missing_values_of_optional_columns_are_as_mlflow_gives_them(kind, values):
    text = json.dumps([{"name": "c0", "type": kind, "required": False}, {"name": "k", "type": "long"}])
    for column in (values, values[::-1]):
        body = {"dataframe_records": [{"c0": value, "k": 1} for value in column]}
        mine, theirs = ours(text, body), mlflows(text, body)
        if kind == "boolean":  # MLflow's parsing reads null as False; its enforcement alone keeps None
            theirs = mlflow_models._enforce_schema(mine, Schema.from_json(text))
        same_frame(mine, theirs)
    body = {"dataframe_records": [{"k": 1}]}
    same_frame(ours(text, body), mlflows(text, body))


NESTED = {
    "array of doubles": ({"type": "array", "items": {"type": "double"}}, [[1.5, 2.5], [], [0.1]]),
    "array of longs": ({"type": "array", "items": {"type": "long"}}, [[1, 2**62]]),
    "array of strings": ({"type": "array", "items": {"type": "string"}}, [["a", "ü"], ["b"]]),
    "array of booleans": ({"type": "array", "items": {"type": "boolean"}}, [[True, False]]),
    "array of arrays": ({"type": "array", "items": {"type": "array", "items": {"type": "long"}}}, [[[1, 2], [3]], []]),
    "object": (
        {
            "type": "object",
            "properties": {
                "d": {"type": "double"},
                "l": {"type": "long"},
                "s": {"type": "string"},
                "b": {"type": "boolean"},
                "v": {"type": "array", "items": {"type": "double"}},
                "o": {"type": "object", "properties": {"x": {"type": "long"}}, "required": False},
            },
        },
        [{"d": 0.5, "l": 2**53 + 1, "s": "x", "b": True, "v": [1.5]},
         {"d": 1.5, "l": 2, "s": "", "b": False, "v": [], "o": {"x": 1}}],
    ),
    "map of doubles": ({"type": "map", "values": {"type": "double"}}, [{"a": 0.5}, {"b": 1.5, "c": 2.5}]),
    "map of arrays": ({"type": "map", "values": {"type": "array", "items": {"type": "string"}}}, [{"a": ["x"]}]),
    "any": ({"type": "any"}, [{"a": [1, None]}, {"b": "x"}]),
}  # fmt: skip


@pytest.mark.parametrize("name", NESTED)
def test_nested_values_are_as_mlflow_gives_them(name):
    kind, values = NESTED[name]
    text = json.dumps([{"name": "c0", "required": True, **kind}])
    for body in (
        {
            "dataframe_split": {
                "columns": ["c0"],
                "data": [[value] for value in values],
                "index": [3, 5, 8][: len(values)],
            }
        },
        {"dataframe_records": [{"c0": value} for value in values]},
    ):
        same_frame(ours(text, body), mlflows(text, copy.deepcopy(body)))


@given(tables(nested=True))
@settings(max_examples=60)
def test_mlflows_enforcement_changes_nothing_about_our_frame(table):
    """So that its looser casts never run on what a client sent."""
    schema, rows = table
    data = {"columns": [column.name for column in schema.columns], "data": rows}
    frame = to_frame(decode_invocation(Invocation(Format.SPLIT, data), schema))
    if len(frame.columns):
        before = copy.deepcopy(frame)
        same_frame(mlflow_models._enforce_schema(frame, Schema.from_json(mlflow_text(schema))), before)


@pytest.mark.parametrize("kind", ["float", "integer", "datetime"])
def test_arrays_of_types_that_a_list_cannot_hold_pass_mlflows_enforcement(kind):
    text = json.dumps([{"name": "c0", "type": "array", "items": {"type": kind}}])
    value = {"float": [0.1, 1], "integer": [1, 2], "datetime": ["2024-01-01", None]}[kind]
    frame = ours(text, {"dataframe_records": [{"c0": value}]})
    enforced = mlflow_models._enforce_schema(frame.copy(), Schema.from_json(text))
    same_frame(enforced, frame)


def test_a_frame_is_the_models_own():
    inputs = Inputs(("a", "b"), 2, np.array([[1.0, 2.0], [3.0, 4.0]]))
    frame = to_frame(inputs)
    frame.iloc[0, 0] = 9.0
    frame["c"] = 1
    assert inputs.matrix.tolist() == [[1, 2], [3, 4]]
    mixed = Inputs(("a", "s"), 1, None, (np.array([1]), np.array(["x"], dtype=object)))
    frame = to_frame(mixed)
    frame.loc[0, "a"] = 9
    assert mixed.parts[0].tolist() == [1]
    assert isinstance(frame.index, pd.RangeIndex)


def test_rows_without_any_column_keep_their_number():
    assert to_frame(Inputs((), 3)).shape == (3, 0)


@given(tensors())
@settings(max_examples=60)
def test_tensors_are_as_mlflow_gives_them(case):
    schema, data = case
    text = json.dumps(
        [
            {"type": "tensor", "name": item.name, "tensor-spec": {"dtype": item.dtype, "shape": item.shape}}
            for item in schema.tensors
        ]
    )
    body = {"inputs": data.get("", data)}
    mine, theirs = ours(text, body), mlflows(text, body)
    if "" in data:
        mine, theirs = {"": mine}, {"": theirs}
    assert list(mine) == list(theirs)
    for name, array in mine.items():
        assert array.dtype == theirs[name].dtype
        assert np.array_equal(array, theirs[name], equal_nan=array.dtype.kind == "f")


def mlflow_text(schema):
    from steelyard.protocols.mlflow.schema import AnyValue, ArrayOf, ColumnType, MapOf

    def kind(item):
        if isinstance(item, ColumnType):
            return {"type": item.value}
        if isinstance(item, AnyValue):
            return {"type": "any"}
        if isinstance(item, ArrayOf):
            return {"type": "array", "items": kind(item.items)}
        if isinstance(item, MapOf):
            return {"type": "map", "values": kind(item.values)}
        return {
            "type": "object",
            "properties": {part.name: {**kind(part.type), "required": part.required} for part in item.properties},
        }

    return json.dumps(
        [
            {"name": column.name, "required": column.required, **kind(column.nested or column.type)}
            for column in schema.columns
        ]
    )
