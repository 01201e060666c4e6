import contextlib
import dataclasses
import datetime
import decimal
import enum
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.errors import ModelFailed
from steelyard.protocols.mlflow import render_plain, render_predictions


def refuse_constant(token):
    raise AssertionError(f"{token} is not JSON")


def rendered(output):
    return json.loads(render_plain(output), parse_constant=refuse_constant)


@dataclasses.dataclass
class Point:
    x: float


class Colour(enum.Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ([1.0, float("nan"), float("inf"), float("-inf")], [1.0, None, None, None]),
        (np.array([1.0, np.nan, np.inf]), [1.0, None, None]),
        (np.array([[1, 2], [3, 4]], dtype=np.int8), [[1, 2], [3, 4]]),
        (np.float32(0.5), 0.5),
        (np.longdouble(0.5), 0.5),
        (np.array(["2024-01-01", "NaT"], dtype="datetime64[s]"), ["2024-01-01T00:00:00", None]),
        (np.array("NaT", dtype="datetime64[s]"), None),
        (np.datetime64("2024-01-01"), "2024-01-01"),
        (np.array([b"ab"]), ["YWI="]),
        (np.array([None, 1, "x"], dtype=object), [None, 1, "x"]),
        (pd.NaT, None),
        (pd.NA, None),
        (pd.Timestamp("2024-01-01T00:00:00Z"), "2024-01-01T00:00:00+00:00"),
        (pd.Series([1, 2], name="p"), [{"p": 1}, {"p": 2}]),
        (pd.Series([1.5]), [{"0": 1.5}]),
        (pd.DataFrame({"a": pd.array([1, None], dtype="Int64")}), [{"a": 1}, {"a": None}]),
        (pd.DataFrame({"a": pd.Categorical(["u", "v"])}), [{"a": "u"}, {"a": "v"}]),
        (pd.DataFrame({"t": pd.to_datetime(["2024-01-01", None])}).t.isna().tolist(), [False, True]),
        (b"ab", "YWI="),
        ((1, 2), [1, 2]),
        ({1: {"a": np.int64(2)}}, {"1": {"a": 2}}),
        (2**80, 2**80),
        (decimal.Decimal("1.5"), 1.5),
        (Point(2.0), {"x": 2.0}),
        (Colour.RED, "red"),
        (datetime.date(2024, 1, 1), "2024-01-01"),
    ],
)
def test_outputs_become_legal_json(output, expected):
    assert rendered(output) == expected


def test_predictions_are_wrapped():
    assert render_predictions([1]) == b'{"predictions":[1]}'


def cyclic():
    value = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "output",
    [
        {1, 2},
        1j,
        np.array([1j]),
        object(),
        "\ud800",
        (item for item in [1]),
        cyclic(),
        pd.DataFrame([[1, 2]], columns=["a", "a"]),
        {1: "a", "1": "b"},
        {(object(),): 1},
    ],
)
def test_what_has_no_json_form_is_the_models_failure_in_one_sentence(output):
    with pytest.raises(ModelFailed) as caught:
        render_predictions(output)
    assert caught.value.message.endswith(".")


def test_torch_tensors_are_arrays():
    torch = pytest.importorskip("torch")
    assert rendered({"logits": torch.tensor([1.0, float("nan")])}) == {"logits": [1.0, None]}


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.datetimes()
    | st.timedeltas()
    | st.decimals()
    | st.complex_numbers()
    | st.sampled_from(
        [pd.NaT, pd.NA, np.float16(1), np.uint8(3), np.datetime64("NaT"), np.str_("s"), np.bytes_(b"\xff")]
    )
)
OUTPUTS = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=3)
        | st.lists(inner, min_size=1, max_size=3).map(lambda items: pd.DataFrame({"a": pd.Series(items, dtype=object)}))
    ),
    max_leaves=8,
)


@given(OUTPUTS)
def test_any_output_is_legal_json_or_a_model_failure(output):
    with contextlib.suppress(ModelFailed):
        rendered(output)
