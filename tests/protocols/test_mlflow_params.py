"""`params` by the signature's schema: what MLflow accepts, with the same values and defaults, and errors that name."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.errors import InvalidParameter
from steelyard.protocols.mlflow.params import check_params, parse_params_schema

mlflow_models = pytest.importorskip("mlflow.models.utils")
from mlflow.exceptions import MlflowException  # noqa: E402
from mlflow.types.schema import DataType, Object, ParamSchema, ParamSpec, Property  # noqa: E402

OPTIONS = Object([Property("x", DataType.long), Property("y", DataType.string, required=False)])
MLFLOWS = ParamSchema(
    [
        ParamSpec("temperature", DataType.float, 0.5),
        ParamSpec("precision", DataType.double, 1e-3),
        ParamSpec("top_k", DataType.long, 40),
        ParamSpec("seed", DataType.integer, 0),
        ParamSpec("stop", DataType.string, ["a", "b"], shape=(-1,)),
        ParamSpec("weights", DataType.double, [0.5], shape=(-1,)),
        ParamSpec("verbose", DataType.boolean, False),
        ParamSpec("name", DataType.string, None),
        ParamSpec("since", DataType.datetime, np.datetime64("2024-01-01T10:00:00")),
        ParamSpec("options", OPTIONS, {"x": 1}),
    ]
)
TEXT = json.dumps(MLFLOWS.to_dict())
SCHEMA = parse_params_schema(TEXT)


def accepted_by_mlflow(params):
    try:
        return mlflow_models._enforce_params_schema(json.loads(json.dumps(params)), MLFLOWS)
    except MlflowException:
        return None


def accepted(params):
    try:
        return check_params(json.loads(json.dumps(params)), SCHEMA)
    except InvalidParameter:
        return None


GOOD = [
    {},
    {"temperature": 1},
    {"temperature": 0.25, "precision": 3, "top_k": -1, "seed": 7},
    {"stop": [], "weights": [1, 0.5]},
    {"verbose": True, "name": None, "temperature": None},
    {"name": ""},
    {"since": "2024-02-03"},
    {"since": "2024-02-03T04:05:06"},
    {"options": {"x": 2, "y": "z"}},
    {"unknown": 1, "top_k": 3},
]


@pytest.mark.parametrize("params", GOOD)
def test_what_mlflow_accepts_comes_out_as_from_mlflow(params):
    mine, theirs = accepted(params), accepted_by_mlflow(params)
    assert mine == theirs
    assert {name: type(value) for name, value in mine.items()} == {name: type(value) for name, value in theirs.items()}
    assert mlflow_models._enforce_params_schema(dict(mine), MLFLOWS) == mine


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"temperature": "hot"}, "Param 'temperature': expected a number, got a string."),
        ({"temperature": True}, "Param 'temperature': expected a number, got a boolean."),
        ({"temperature": [0.5]}, "Param 'temperature': expected a number, got an array."),
        ({"top_k": 1.0}, "Param 'top_k': expected an integer, got a number with a decimal point."),
        ({"top_k": 2**63}, "Param 'top_k': the integer is out of range for type long."),
        ({"seed": 2**31}, "Param 'seed': the integer is out of range for type integer."),
        ({"stop": "a"}, "Param 'stop': expected an array of values, got a string."),
        ({"stop": [1]}, "Param 'stop': expected a string, got a number."),
        ({"stop": [["a"]]}, "Param 'stop': expected a string, got an array."),
        ({"verbose": 1}, "Param 'verbose': expected true or false, got a number."),
        ({"since": 1704067200}, "Param 'since': expected an ISO 8601 date and time, got a number."),
        ({"since": "soon"}, "Param 'since': expected an ISO 8601 date and time."),
        ({"options": {"y": "z"}}, "Param 'options': the field 'x' is missing."),
        ({"options": {"x": "1"}}, "Param 'options': at 'x' expected an integer, got a string."),
    ],
)
def test_a_param_of_another_type_is_named(params, message):
    with pytest.raises(InvalidParameter) as caught:
        check_params(params, SCHEMA)
    assert caught.value.message == message
    assert caught.value.param == next(iter(params))


JSON = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
VALUES = JSON | st.lists(JSON, max_size=2) | st.dictionaries(st.sampled_from("xyz"), JSON, max_size=2)


@given(st.dictionaries(st.sampled_from([param.name for param in SCHEMA.params if param.name != "since"]), VALUES))
def test_we_accept_nothing_that_mlflow_refuses(params):
    """Of dates we accept more: a zone, which is converted to UTC."""
    mine = accepted(params)
    if mine is not None:
        theirs = accepted_by_mlflow(params)
        assert theirs is not None
        assert mine == theirs


def test_a_model_without_a_schema_ignores_params():
    assert parse_params_schema(None) is None
    assert parse_params_schema("[]") is None
    assert check_params({"a": 1}, None) is None


def test_old_signatures_say_dtype():
    schema = parse_params_schema('[{"name":"k","dtype":"long","default":3,"shape":null}]')
    assert check_params(None, schema) == {"k": 3}


def test_defaults_of_one_request_are_not_those_of_the_next():
    check_params(None, SCHEMA)["stop"].append("c")
    assert check_params(None, SCHEMA)["stop"] == ["a", "b"]


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[1]",
        '[{"name":"k"}]',
        '[{"name":"k","type":"tensor","default":1}]',
        '[{"name":"k","type":"long","default":"x"}]',
    ],
)
def test_a_schema_that_cannot_be_read_says_so(text):
    with pytest.raises(ValueError):  # noqa: PT011
        parse_params_schema(text)
